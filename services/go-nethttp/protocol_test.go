package main

import (
	"bytes"
	"testing"
	"time"
)

func TestIsStart_AgreesWithTheGoldenMessages(t *testing.T) {
	for _, entry := range readGolden(t).Client {
		if entry.State != "first" || entry.Text == nil {
			continue
		}
		if isStart([]byte(*entry.Text)) != (entry.Means == "start") {
			t.Errorf("%s: %q", entry.Name, *entry.Text)
		}
	}
}

func TestPartialMessage_EqualsGoldenBytes(t *testing.T) {
	for _, entry := range readGolden(t).Partial {
		of := entry.Of
		s := span{oldest: of.OldestFrameSeq, frames: of.Frames}
		answer, err := parseRecognition([]byte(of.Body), s, of.CPUPasses)
		if err != nil {
			t.Errorf("%s: %v", entry.Name, err)
		}
		settings := echoedSettings{cpuPasses: of.CPUPasses, modelDelayMS: of.ModelDelayMS}
		text := partialMessage(s, &answer, settings, fromMS(of.FlushLatenessMS))
		if string(text) != entry.Text {
			t.Errorf("%s:\n%s\ninstead of\n%s", entry.Name, text, entry.Text)
		}
	}
}

func TestErrorMessage_EqualsGoldenBytes(t *testing.T) {
	for _, entry := range readGolden(t).Error {
		of := entry.Of
		w := errorContext{
			oldestAge: fromMS(of.OldestAgeMS), newestAge: fromMS(of.NewestAgeMS),
			flushLateness: fromMS(of.FlushLatenessMS), bufferedFrames: of.GatewayBufferFrames,
		}
		if of.InferenceElapsedMS != nil {
			elapsed := fromMS(*of.InferenceElapsedMS)
			w.inferenceElapsed = &elapsed
		}
		f := &failure{kind: of.Kind, status: of.InferenceStatus, message: of.Message}
		text := errorMessage(span{oldest: of.OldestFrameSeq, frames: of.Frames}, f, w)
		if string(text) != entry.Text {
			t.Errorf("%s:\n%s\ninstead of\n%s", entry.Name, text, entry.Text)
		}
	}
}

func TestErrorMessage_DoesNotEscapeHTML(t *testing.T) {
	text := errorMessage(span{oldest: 1, frames: 1}, &failure{kind: kindTimeout, message: "<a & b>"}, errorContext{})
	if !bytes.Contains(text, []byte(`"message":"<a & b>"`)) {
		t.Errorf("%s", text)
	}
}

func TestMilliseconds_AlwaysHaveADecimalPoint(t *testing.T) {
	for value, want := range map[time.Duration]string{
		0: "0.0", time.Second: "1000.0", 1500 * time.Microsecond: "1.5", time.Nanosecond: "0.000001",
	} {
		if text := milliseconds(value).appendTo(nil); string(text) != want {
			t.Errorf("%v is written as %s instead of %s", value, text, want)
		}
	}
}
