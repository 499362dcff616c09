package main

// What clients say, what they get, and what the inference answers. Pure: bytes in, bytes out.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

const (
	// frameBytes is one frame of audio: 20 ms of 16 kHz mono, 16 bits each.
	frameBytes = 640
	// frameSamples is the number of samples in one frame.
	frameSamples = 320
	// maxMessageBytes is the longest data message that is read.
	maxMessageBytes = 64 << 10
)

// isStart reports whether text is exactly the object {"type":"start"}, with any white space.
func isStart(text []byte) bool {
	tokens := json.NewDecoder(bytes.NewReader(text))
	for _, want := range []json.Token{json.Delim('{'), "type", "start", json.Delim('}')} {
		if token, err := tokens.Token(); err != nil || token != want {
			return false
		}
	}
	_, err := tokens.Token()
	return errors.Is(err, io.EOF)
}

// span is a run of frames with consecutive sequence numbers: what one message covers.
type span struct {
	oldest uint64
	frames uint64
}

func (s span) newest() uint64     { return s.oldest + s.frames - 1 }
func (s span) audioBytes() uint64 { return s.frames * frameBytes }

// recognition is the inference's answer to one batch. rms and the transcript are kept as JSON, to be passed on unchanged.
type recognition struct {
	rms           json.Number
	zeroCrossings uint64
	checksum      uint32
	samples       uint64
	transcript    string
	audioBytes    uint64
}

// parseRecognition reads an answer about the frames of s: a JSON object of exactly six keys, each once, whose counts match.
//
// encoding/json's struct decoding ignores case and repeated keys, so the object is read token by token.
func parseRecognition(body []byte, s span, cpuPasses uint32) (recognition, error) {
	tokens := json.NewDecoder(bytes.NewReader(body))
	tokens.UseNumber()
	if token, err := tokens.Token(); err != nil || token != json.Delim('{') {
		return recognition{}, errors.New("the inference's answer is not a JSON object")
	}
	var answer recognition
	seen := make(map[string]bool, 6)
	for tokens.More() {
		key, err := tokens.Token()
		if err != nil {
			return recognition{}, unreadable(err)
		}
		value, err := tokens.Token()
		if err != nil {
			return recognition{}, unreadable(err)
		}
		// A key of an object is a string: the decoder has checked that.
		name, _ := key.(string)
		if seen[name] {
			return recognition{}, fmt.Errorf("the inference's answer has %q twice", name)
		}
		seen[name] = true
		if err := answer.set(name, value); err != nil {
			return recognition{}, err
		}
	}
	if _, err := tokens.Token(); err != nil {
		return recognition{}, unreadable(err)
	}
	if _, err := tokens.Token(); !errors.Is(err, io.EOF) {
		return recognition{}, errors.New("the inference's answer goes on after its object")
	}
	// Every key that is set is one of the six.
	if len(seen) != 6 {
		return recognition{}, fmt.Errorf("the inference's answer has %d keys instead of 6", len(seen))
	}
	return answer, answer.check(s, cpuPasses)
}

func unreadable(err error) error {
	return fmt.Errorf("failed to read the inference's answer: %w", err)
}

// set stores one member of the answer.
func (r *recognition) set(name string, value json.Token) (err error) {
	switch name {
	case "rms":
		r.rms, err = parseFinite(name, value)
	case "zero_crossings":
		r.zeroCrossings, err = parseInteger(name, value, 64)
	case "checksum":
		var checksum uint64
		checksum, err = parseInteger(name, value, 32)
		r.checksum = uint32(checksum)
	case "samples":
		r.samples, err = parseInteger(name, value, 64)
	case "audio_bytes":
		r.audioBytes, err = parseInteger(name, value, 64)
	case "transcript":
		text, isText := value.(string)
		if !isText {
			return fmt.Errorf("the inference's answer has a transcript that is not a string: %v", value)
		}
		r.transcript = text
	default:
		return fmt.Errorf("the inference's answer has an unknown key %q", name)
	}
	return err
}

// check compares the answer with the batch that it is about.
func (r *recognition) check(s span, cpuPasses uint32) error {
	if samples := uint64(cpuPasses) * frameSamples * s.frames; r.samples != samples {
		return fmt.Errorf("the inference's answer has %d samples instead of %d", r.samples, samples)
	}
	if r.audioBytes != s.audioBytes() {
		return fmt.Errorf("the inference's answer has %d bytes of audio instead of %d", r.audioBytes, s.audioBytes())
	}
	if r.transcript == "" {
		return errors.New("the inference's answer has an empty transcript")
	}
	return nil
}

// parseInteger reads a non-negative integer that is written as one: no sign, point or exponent.
func parseInteger(name string, value json.Token, bits int) (uint64, error) {
	number, isNumber := value.(json.Number)
	if !isNumber {
		return 0, fmt.Errorf("the inference's answer has %s that is not a number: %v", name, value)
	}
	integer, err := strconv.ParseUint(number.String(), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("the inference's answer has %s that is not an integer of %d bits: %s", name, bits, number)
	}
	return integer, nil
}

// parseFinite checks that value is a finite number, and keeps it as it is written.
func parseFinite(name string, value json.Token) (json.Number, error) {
	number, isNumber := value.(json.Number)
	if !isNumber {
		return "", fmt.Errorf("the inference's answer has %s that is not a number: %v", name, value)
	}
	if float, err := number.Float64(); err != nil || math.IsInf(float, 0) {
		return "", fmt.Errorf("the inference's answer has %s that is not finite: %s", name, number)
	}
	return number, nil
}

// milliseconds is a duration as messages write it: a number with a point, also when it is whole.
type milliseconds time.Duration

func (m milliseconds) MarshalJSON() ([]byte, error) {
	// Divided once: 1.5 ms are 1.5 and not 1.4999….
	value := float64(m) / float64(time.Millisecond)
	text := strconv.AppendFloat(make([]byte, 0, 24), value, 'f', -1, 64)
	if value == math.Trunc(value) {
		text = append(text, ".0"...)
	}
	return text, nil
}

// echo is what partials repeat of the gateway's settings.
type echo struct {
	cpuPasses    uint32
	modelDelayMS uint64
}

// partialMessage returns the partial about s, as JSON.
func partialMessage(s span, answer recognition, settings echo, flushLateness time.Duration) []byte {
	return encode(struct {
		Type              string       `json:"type"`
		OldestFrameSeq    uint64       `json:"oldest_frame_seq"`
		NewestFrameSeq    uint64       `json:"newest_frame_seq"`
		Frames            uint64       `json:"frames"`
		RMS               json.Number  `json:"rms"`
		ZeroCrossings     uint64       `json:"zero_crossings"`
		Checksum          uint32       `json:"checksum"`
		Samples           uint64       `json:"samples"`
		Transcript        string       `json:"transcript"`
		AudioBytes        uint64       `json:"audio_bytes"`
		CPUPasses         uint32       `json:"cpu_passes"`
		ModelDelayMS      uint64       `json:"model_delay_ms"`
		FlushLatenessMS   milliseconds `json:"flush_lateness_ms"`
		InflightModelJobs int          `json:"inflight_model_jobs"`
	}{
		Type: "partial", OldestFrameSeq: s.oldest, NewestFrameSeq: s.newest(), Frames: s.frames,
		RMS: answer.rms, ZeroCrossings: answer.zeroCrossings, Checksum: answer.checksum, Samples: answer.samples,
		Transcript: answer.transcript, AudioBytes: answer.audioBytes,
		CPUPasses: settings.cpuPasses, ModelDelayMS: settings.modelDelayMS, FlushLatenessMS: milliseconds(flushLateness),
	})
}

// kind says why frames got no partial; its text is its name on the wire and in the books.
type kind string

const (
	kindOverflow        kind = "overflow"
	kindTimeout         kind = "timeout"
	kindConnectionReset kind = "connection_reset"
	kindHTTP429         kind = "http_429"
	// kindHTTP5xx is any status but success and 429; the name is the protocol's.
	kindHTTP5xx    kind = "http_5xx"
	kindParseError kind = "parse_error"
)

// requestKinds are the ways in which a request can fail.
var requestKinds = [...]kind{kindConnectionReset, kindHTTP429, kindHTTP5xx, kindParseError, kindTimeout}

func (k kind) stage() string {
	switch k {
	case kindOverflow:
		return "websocket_receive"
	case kindParseError:
		return "inference_response_parse"
	default:
		return "inference_request"
	}
}

// failure is why a batch got no partial.
type failure struct {
	kind kind
	// status is that of the inference's answer; 0 if there was none.
	status  int
	message string
}

func (f *failure) Error() string { return f.message }

func (f *failure) retryable() bool {
	switch f.kind {
	case kindTimeout, kindConnectionReset, kindHTTP429:
		return true
	case kindHTTP5xx:
		return f.status >= 500 && f.status < 600
	default:
		return false
	}
}

// wait is how long the frames of an error have waited, and what waits behind them.
type wait struct {
	// oldestAge and newestAge count from when the first and the last frame were read from the socket.
	oldestAge, newestAge time.Duration
	flushLateness        time.Duration
	// inferenceElapsed counts from the start of the request; nil if there was none.
	inferenceElapsed *time.Duration
	// bufferedFrames wait now.
	bufferedFrames uint64
}

// errorMessage returns the error about s, as JSON.
func errorMessage(s span, f *failure, w wait) []byte {
	var status *int
	if f.status != 0 {
		status = &f.status
	}
	inflight := 0
	if w.inferenceElapsed != nil {
		inflight = 1
	}
	return encode(struct {
		Type                   string        `json:"type"`
		Stage                  string        `json:"stage"`
		Kind                   kind          `json:"kind"`
		Message                string        `json:"message"`
		OldestFrameSeq         uint64        `json:"oldest_frame_seq"`
		NewestFrameSeq         uint64        `json:"newest_frame_seq"`
		Frames                 uint64        `json:"frames"`
		AudioBytes             uint64        `json:"audio_bytes"`
		OldestAgeMS            milliseconds  `json:"oldest_age_ms"`
		NewestAgeMS            milliseconds  `json:"newest_age_ms"`
		FlushLatenessMS        milliseconds  `json:"flush_lateness_ms"`
		InferenceElapsedMS     *milliseconds `json:"inference_elapsed_ms"`
		InflightGatewayBatches int           `json:"inflight_gateway_batches"`
		GatewayBufferFrames    uint64        `json:"gateway_buffer_frames"`
		InferenceStatus        *int          `json:"inference_status"`
		Retryable              bool          `json:"retryable"`
	}{
		Type: "error", Stage: f.kind.stage(), Kind: f.kind, Message: f.message,
		OldestFrameSeq: s.oldest, NewestFrameSeq: s.newest(), Frames: s.frames, AudioBytes: s.audioBytes(),
		OldestAgeMS: milliseconds(w.oldestAge), NewestAgeMS: milliseconds(w.newestAge),
		FlushLatenessMS: milliseconds(w.flushLateness), InferenceElapsedMS: (*milliseconds)(w.inferenceElapsed),
		InflightGatewayBatches: inflight, GatewayBufferFrames: w.bufferedFrames,
		InferenceStatus: status, Retryable: f.retryable(),
	})
}

// encode writes a message without the escapes for HTML that json.Marshal adds.
func encode(message any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(message); err != nil {
		// Only numbers and strings are in it, and those can always be written.
		panic(err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}
