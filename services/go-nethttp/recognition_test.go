package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"testing"
	"unicode/utf8"
)

func TestParseRecognition_AgreesWithTheGoldenMessages(t *testing.T) {
	for _, entry := range readGolden(t).Inference {
		if entry.Status != 200 {
			continue
		}
		_, err := parseRecognition([]byte(entry.Body), span{oldest: 1, frames: entry.Frames}, entry.CPUPasses)
		if (err == nil) != (entry.Means == "partial") {
			t.Errorf("%s: %v", entry.Name, err)
		}
	}
}

func TestParseRecognition_RejectsResponsesThatEncodingJSONAccepts(t *testing.T) {
	for _, body := range []string{
		`{"RMS":1,"zero_crossings":7,"checksum":1,"samples":320,"transcript":"a","audio_bytes":640}`,
		`{"rms":1,"zero_crossings":7,"checksum":1,"samples":320,"transcript":"a","audio_bytes":640,"audio_bytes":640}`,
		`{"rms":1,"zero_crossings":7,"checksum":1,"samples":320,"transcript":"` + "\xff" + `","audio_bytes":640}`,
	} {
		if _, err := parseRecognition([]byte(body), span{oldest: 1, frames: 1}, 1); err == nil {
			t.Errorf("taken: %s", body)
		}
	}
}

// parseByTokens parses a response with encoding/json, for comparison.
func parseByTokens(body []byte) (members map[string]json.Token, isValid bool) {
	tokens := json.NewDecoder(bytes.NewReader(body))
	tokens.UseNumber()
	if token, err := tokens.Token(); err != nil || token != json.Delim('{') || !utf8.Valid(body) {
		return nil, false
	}
	members = map[string]json.Token{}
	for tokens.More() {
		key, keyErr := tokens.Token()
		value, valueErr := tokens.Token()
		name, _ := key.(string)
		if _, isDuplicate := members[name]; keyErr != nil || valueErr != nil || isDuplicate {
			return nil, false
		}
		members[name] = value
	}
	if _, err := tokens.Token(); err != nil {
		return nil, false
	}
	if _, err := tokens.Token(); !errors.Is(err, io.EOF) {
		return nil, false
	}
	return members, hasExpectedTypes(members)
}

func hasExpectedTypes(members map[string]json.Token) bool {
	for _, name := range responseKeys {
		number, isNumber := members[name].(json.Number)
		_, isText := members[name].(string)
		bits := 64
		if name == "checksum" {
			bits = 32
		}
		_, floatErr := number.Float64()
		_, integerErr := strconv.ParseUint(number.String(), 10, bits)
		switch {
		case name == "transcript" && isText:
		case name == "rms" && isNumber && floatErr == nil:
		case name != "transcript" && name != "rms" && isNumber && integerErr == nil:
		default:
			return false
		}
	}
	return len(members) == len(responseKeys)
}

// FuzzRecognition compares the parser with encoding/json: both accept the same responses and read the same values.
func FuzzRecognition(f *testing.F) {
	for _, entry := range readGolden(f).Inference {
		f.Add([]byte(entry.Body))
	}
	f.Add([]byte(`{"rms":1e3,"zero_crossings":0,"checksum":0,"samples":0,"\u0074ranscript":"\ud83d\ude00<","audio_bytes":0}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var r recognition
		err := r.parse(bytes.Clone(body))
		members, isValid := parseByTokens(body)
		if (err == nil) != isValid {
			t.Fatalf("%q: %v, but encoding/json says %v: %v", body, err, isValid, members)
		}
		if err != nil {
			return
		}
		var transcript string
		if err := json.Unmarshal(r.transcript, &transcript); err != nil || transcript != members["transcript"] {
			t.Fatalf("the transcript %q is read as %q (%v)", members["transcript"], r.transcript, err)
		}
		text := partialMessage(span{oldest: 1, frames: 1}, &r, echoedSettings{}, 0)
		if !json.Valid(text) || !utf8.Valid(text) {
			t.Fatalf("the partial is broken: %s", text)
		}
		if strconv.FormatUint(r.checksum, 10) != members["checksum"].(json.Number).String() {
			t.Fatalf("the checksum is read as %d", r.checksum)
		}
	})
}
