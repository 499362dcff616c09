package main

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

// golden is the content of services/testdata/stt-messages.json. services/README.md describes its fields.
type golden struct {
	Client []struct {
		Name, State, Means string
		Text               *string
		Binary, Wire, Hex  string
		Zeros              *int
		Code               int
		Reason             string
	}
	Inference []struct {
		Name, Body, Means, Stage string
		Kind                     kind
		Status                   int
		Frames                   uint64
		CPUPasses                uint32 `json:"cpu_passes"`
		InferenceStatus          *int   `json:"inference_status"`
		Retryable                bool
	}
	Partial []struct {
		Name, Text string
		Of         struct {
			OldestFrameSeq  uint64 `json:"oldest_frame_seq"`
			Frames          uint64
			CPUPasses       uint32  `json:"cpu_passes"`
			ModelDelayMS    uint64  `json:"model_delay_ms"`
			FlushLatenessMS float64 `json:"flush_lateness_ms"`
			Body            string
		}
	}
	Error []struct {
		Name, Text string
		Of         struct {
			Kind                kind
			Message             string
			OldestFrameSeq      uint64 `json:"oldest_frame_seq"`
			Frames              uint64
			OldestAgeMS         float64  `json:"oldest_age_ms"`
			NewestAgeMS         float64  `json:"newest_age_ms"`
			FlushLatenessMS     float64  `json:"flush_lateness_ms"`
			InferenceElapsedMS  *float64 `json:"inference_elapsed_ms"`
			GatewayBufferFrames uint64   `json:"gateway_buffer_frames"`
			InferenceStatus     int      `json:"inference_status"`
		}
	}
}

func readGolden(t testing.TB) golden {
	t.Helper()
	text, err := os.ReadFile("../testdata/stt-messages.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func fromMS(value float64) time.Duration { return time.Duration(value*1e6 + 0.5) }
