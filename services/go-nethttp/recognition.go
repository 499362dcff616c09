package main

// Parser of the inference's response. No I/O.
//
// It is a handwritten parser. encoding/json accepts keys in any case, duplicate keys and unknown keys; its token API, which
// shows them, took a twentieth of all CPU time. A fuzz test compares the two.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// recognition is the inference's response to one batch. rms and transcript are JSON text, which partials repeat unchanged.
type recognition struct {
	rms           []byte
	zeroCrossings uint64
	checksum      uint64
	samples       uint64
	transcript    []byte
	audioBytes    uint64
}

// responseKeys are the keys of a response. Each must occur exactly once.
var responseKeys = [...]string{"rms", "zero_crossings", "checksum", "samples", "transcript", "audio_bytes"}

// parseRecognition parses the response to the batch s and checks its counts. The result refers to parts of body.
func parseRecognition(body []byte, s span, cpuPasses uint32) (recognition, error) {
	var r recognition
	if err := r.parse(body); err != nil {
		return r, fmt.Errorf("the inference's answer %w", err)
	}
	if samples := uint64(cpuPasses) * frameSamples * s.frames; r.samples != samples {
		return r, fmt.Errorf("the inference's answer has %d samples instead of %d", r.samples, samples)
	}
	if r.audioBytes != s.audioBytes() {
		return r, fmt.Errorf("the inference's answer has %d bytes of audio instead of %d", r.audioBytes, s.audioBytes())
	}
	if string(r.transcript) == `""` {
		return r, errors.New("the inference's answer has an empty transcript")
	}
	return r, nil
}

// parse parses the JSON object.
func (r *recognition) parse(body []byte) error {
	t := jsonText{remaining: body}
	if !t.accept('{') {
		return errors.New("is not a JSON object")
	}
	seen := [len(responseKeys)]bool{}
	for n := range responseKeys {
		if n > 0 && !t.accept(',') {
			return errors.New("has fewer than six keys, or is broken")
		}
		key, err := t.string()
		if err != nil {
			return fmt.Errorf("has a broken key: %w", err)
		}
		index := indexOfKey(key)
		if index < 0 || seen[index] {
			return fmt.Errorf("has the key %s, which is unknown or there twice", key)
		}
		seen[index] = true
		if !t.accept(':') {
			return fmt.Errorf("has the key %s without a value", key)
		}
		if err := r.set(index, &t); err != nil {
			return fmt.Errorf("has a wrong %s: %w", responseKeys[index], err)
		}
	}
	if !t.accept('}') {
		return errors.New("has more than six keys, or is broken")
	}
	if t.skipSpace(); len(t.remaining) > 0 {
		return errors.New("goes on behind its object")
	}
	return nil
}

// indexOfKey returns the index in responseKeys of a quoted key, or -1 if it is unknown.
func indexOfKey(key []byte) int {
	for n, name := range responseKeys {
		if string(key[1:len(key)-1]) == name {
			return n
		}
	}
	return -1
}

// set parses the value of the key responseKeys[index].
func (r *recognition) set(index int, t *jsonText) (err error) {
	switch responseKeys[index] {
	case "rms":
		r.rms, err = t.finite()
	case "zero_crossings":
		r.zeroCrossings, err = t.integer(64)
	case "checksum":
		r.checksum, err = t.integer(32)
	case "samples":
		r.samples, err = t.integer(64)
	case "transcript":
		r.transcript, err = t.string()
	case "audio_bytes":
		r.audioBytes, err = t.integer(64)
	}
	return err
}

// jsonText is JSON text that is consumed from its front.
type jsonText struct{ remaining []byte }

func (t *jsonText) skipSpace() {
	t.remaining = bytes.TrimLeft(t.remaining, " \t\r\n")
}

// accept skips white space and the given character. It returns false if another character is next.
func (t *jsonText) accept(character byte) bool {
	t.skipSpace()
	if len(t.remaining) == 0 || t.remaining[0] != character {
		return false
	}
	t.remaining = t.remaining[1:]
	return true
}

// string returns a JSON string with its quotes, normalised to the fewest escapes.
func (t *jsonText) string() ([]byte, error) {
	t.skipSpace()
	if len(t.remaining) == 0 || t.remaining[0] != '"' {
		return nil, errors.New("a string is missing")
	}
	isEscaped := false
	for n := 1; n < len(t.remaining); n++ {
		switch c := t.remaining[n]; {
		case c == '\\':
			isEscaped = true
			n++
		case c < ' ':
			return nil, errors.New("a string has a control character")
		case c == '"':
			text := t.remaining[:n+1]
			t.remaining = t.remaining[n+1:]
			if !utf8.Valid(text) {
				return nil, errors.New("a string is not UTF-8")
			}
			if isEscaped {
				return unescape(text)
			}
			return text, nil
		}
	}
	return nil, errors.New("a string has no end")
}

// unescape rewrites a JSON string with only the escapes that JSON requires.
func unescape(text []byte) ([]byte, error) {
	var plain string
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	return encode(plain), nil
}

// number returns the longest run of characters that occur in numbers; it may be empty or invalid.
func (t *jsonText) number() []byte {
	t.skipSpace()
	length := 0
	for length < len(t.remaining) && bytes.IndexByte([]byte("+-.0123456789Ee"), t.remaining[length]) >= 0 {
		length++
	}
	number := t.remaining[:length]
	t.remaining = t.remaining[length:]
	return number
}

// integer returns a non-negative integer without sign, decimal point or exponent.
func (t *jsonText) integer(bits int) (uint64, error) {
	number := t.number()
	if len(number) > 1 && number[0] == '0' {
		return 0, fmt.Errorf("%s begins with a zero", number)
	}
	integer, err := strconv.ParseUint(string(number), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is not an integer of %d bits", number, bits)
	}
	return integer, nil
}

// finite returns the text of a finite number.
func (t *jsonText) finite() ([]byte, error) {
	number := t.number()
	value, err := strconv.ParseFloat(string(number), 64)
	if err != nil || math.IsInf(value, 0) || !json.Valid(number) {
		return nil, fmt.Errorf("%q is not a finite number", number)
	}
	return number, nil
}
