package main

// The messages of the protocol: the start message, partials and errors. No I/O: bytes in, bytes out.

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"time"
)

const (
	// frameBytes is the size of one audio frame: 20 ms of 16 kHz mono PCM with 16-bit samples.
	frameBytes = 640
	// frameSamples is the number of samples in one frame.
	frameSamples = 320
	// maxMessageBytes is the largest data message that a client may send; beyond it the connection is closed with 1009.
	maxMessageBytes = 64 << 10
)

// isStart reports whether text is the JSON object {"type":"start"} without further keys. White space is allowed.
func isStart(text []byte) bool {
	tokens := json.NewDecoder(bytes.NewReader(text))
	for _, expected := range []json.Token{json.Delim('{'), "type", "start", json.Delim('}')} {
		if token, err := tokens.Token(); err != nil || token != expected {
			return false
		}
	}
	_, err := tokens.Token()
	return errors.Is(err, io.EOF)
}

// span is a sequence of frames with consecutive numbers, which one message covers.
type span struct {
	oldest uint64
	frames uint64
}

func (s span) newest() uint64     { return s.oldest + s.frames - 1 }
func (s span) audioBytes() uint64 { return s.frames * frameBytes }

// milliseconds is a duration that is written as a number of milliseconds with a decimal point, even if it is whole.
type milliseconds time.Duration

func (m milliseconds) appendTo(text []byte) []byte {
	// A single division rounds correctly: 1.5 ms is 1.5 and not 1.4999….
	value := float64(m) / float64(time.Millisecond)
	text = strconv.AppendFloat(text, value, 'f', -1, 64)
	if value == math.Trunc(value) {
		text = append(text, ".0"...)
	}
	return text
}

func (m milliseconds) MarshalJSON() ([]byte, error) { return m.appendTo(nil), nil }

// echoedSettings are the settings that every partial repeats.
type echoedSettings struct {
	cpuPasses    uint32
	modelDelayMS uint64
}

// partialMessage returns the partial that covers s, as JSON. It is built without encoding/json for speed, since there is
// one per batch.
func partialMessage(s span, result *recognition, settings echoedSettings, flushLateness time.Duration) []byte {
	text := make([]byte, 0, 384+len(result.transcript))
	integer := func(key string, value uint64) {
		text = strconv.AppendUint(append(text, key...), value, 10)
	}
	integer(`{"type":"partial","oldest_frame_seq":`, s.oldest)
	integer(`,"newest_frame_seq":`, s.newest())
	integer(`,"frames":`, s.frames)
	text = append(append(text, `,"rms":`...), result.rms...)
	integer(`,"zero_crossings":`, result.zeroCrossings)
	integer(`,"checksum":`, result.checksum)
	integer(`,"samples":`, result.samples)
	text = append(append(text, `,"transcript":`...), result.transcript...)
	integer(`,"audio_bytes":`, result.audioBytes)
	integer(`,"cpu_passes":`, uint64(settings.cpuPasses))
	integer(`,"model_delay_ms":`, settings.modelDelayMS)
	text = milliseconds(flushLateness).appendTo(append(text, `,"flush_lateness_ms":`...))
	return append(text, `,"inflight_model_jobs":0}`...)
}

// kind is the reason why frames got no partial: the value of "kind" in error messages, and the label in the books.
type kind string

const (
	kindOverflow        kind = "overflow"
	kindTimeout         kind = "timeout"
	kindConnectionReset kind = "connection_reset"
	kindHTTP429         kind = "http_429"
	// kindHTTP5xx is any status except 2xx and 429. The contract gives it this name.
	kindHTTP5xx    kind = "http_5xx"
	kindParseError kind = "parse_error"
)

// requestKinds are the kinds with which a request can fail.
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

// failure describes why a batch gets an error message instead of a partial.
type failure struct {
	kind kind
	// status is the HTTP status of the inference's response; 0 if there was none.
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

// errorContext holds the times and the buffer state that an error message reports.
type errorContext struct {
	// oldestAge and newestAge are the times since the first and the last frame were read from the socket.
	oldestAge, newestAge time.Duration
	flushLateness        time.Duration
	// inferenceElapsed is the time since the request began; nil if there was no request.
	inferenceElapsed *time.Duration
	// bufferedFrames is the number of frames of the session that wait now.
	bufferedFrames uint64
}

// errorMessage returns the error that covers s, as JSON.
func errorMessage(s span, f *failure, w errorContext) []byte {
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

// encode encodes a message without the HTML escapes that json.Marshal adds.
func encode(message any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(message); err != nil {
		// Messages contain only numbers and strings, which can always be encoded.
		panic(err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}
