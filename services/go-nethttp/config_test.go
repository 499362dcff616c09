package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

func configOf(variables map[string]string, flags ...string) (config, error) {
	lookup := func(name string) (string, bool) {
		value, isSet := variables[name]
		return value, isSet
	}
	return parseConfig(flags, lookup, io.Discard)
}

func TestConfig_HasTheDefaultsOfTheContract(t *testing.T) {
	c, err := configOf(nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.host.String() != "127.0.0.1" || c.port != 3000 || c.metricsPort != 0 || c.inferenceURL.String() != "http://127.0.0.1:9000" ||
		c.echo != (echoedSettings{cpuPasses: 4, modelDelayMS: 75}) || c.flushInterval != time.Second || c.flushPhaseJitter != 0 ||
		c.inferenceTimeout != 2*time.Second || c.workerThreads != 0 || c.maxBufferedFrames != 200 || c.maxConnections != 0 {
		t.Errorf("%+v", c)
	}
}

func TestConfig_FlagOverridesVariable(t *testing.T) {
	c, err := configOf(map[string]string{"FLUSH_INTERVAL_MS": "200", "CPU_PASSES": "2"}, "--flush-interval-ms", "300")
	if err != nil || c.flushInterval != 300*time.Millisecond || c.echo.cpuPasses != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestConfig_RejectsInvalidValuesByName(t *testing.T) {
	for variable, value := range map[string]string{
		"HOST": "localhost", "PORT": "65536", "METRICS_PORT": "-1", "INFERENCE_URL": "https://a:1", "CPU_PASSES": "0",
		"MODEL_DELAY_MS": "+1", "FLUSH_INTERVAL_MS": "1e3", "FLUSH_PHASE_JITTER_MS": "60001", "INFERENCE_TIMEOUT_MS": "",
		"INFERENCE_HTTP_CLIENTS": "0", "WORKER_THREADS": "many", "MAX_BUFFERED_FRAMES": "0", "MAX_CONNECTIONS": "1.5",
	} {
		_, err := configOf(map[string]string{variable: value})
		if err == nil || !strings.Contains(err.Error(), variable) {
			t.Errorf("%s=%q: %v", variable, value, err)
		}
		flag := strings.ReplaceAll(strings.ToLower(variable), "_", "-")
		_, err = configOf(nil, "--"+flag+"="+value)
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("--%s=%q: %v", flag, value, err)
		}
	}
}

func TestInferenceURL_RequiresHostAndPort(t *testing.T) {
	for _, good := range []string{"http://127.0.0.1:9000", "http://inference-sim:80/", "http://[::1]:9000"} {
		if _, err := parseInferenceURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"https://a:1", "http://a", "http://a:0", "http://a:x", "http://:1", "http://a:1/b", "http://u@a:1", "http://a:1?b", "a:1", "",
	} {
		if _, err := parseInferenceURL(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
