package main

// The settings, from environment variables and from flags of the same meaning. A flag overrides its variable.

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// config holds the gateway's validated settings, as listed in services/README.md ("Gateways").
type config struct {
	host                 netip.Addr
	port                 uint16
	metricsPort          uint16
	inferenceURL         *url.URL
	echo                 echoedSettings
	flushInterval        time.Duration
	flushPhaseJitter     time.Duration
	inferenceTimeout     time.Duration
	inferenceHTTPClients int
	// workerThreads is GOMAXPROCS; 0 leaves it to the runtime, which respects CPU affinity and the cgroup's quota.
	workerThreads     int
	maxBufferedFrames uint64
	// maxConnections limits the open connections; 0 means no limit.
	maxConnections uint64
	// version prints the version instead of starting a gateway.
	version bool
}

// parseConfig reads flags, and environment variables for flags that are not given. lookup is os.LookupEnv except in tests.
func parseConfig(arguments []string, lookup func(string) (string, bool), output io.Writer) (config, error) {
	c := config{host: netip.AddrFrom4([4]byte{127, 0, 0, 1}), inferenceURL: &url.URL{Scheme: "http", Host: "127.0.0.1:9000"}}
	flags := flag.NewFlagSet("go-nethttp", flag.ContinueOnError)
	// The caller prints the error. The usage is printed only for -help.
	flags.SetOutput(io.Discard)
	flags.BoolVar(&c.version, "version", false, "print the version and exit")
	c.define(flags)
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(output)
			flags.PrintDefaults()
		}
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	isGiven := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { isGiven[f.Name] = true })
	var errs []error
	flags.VisitAll(func(f *flag.Flag) {
		variable := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, isSet := lookup(variable)
		if !isSet || isGiven[f.Name] || f.Name == "version" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			errs = append(errs, fmt.Errorf("invalid value %q for %s: %w", value, variable, err))
		}
	})
	return c, errors.Join(errs...)
}

// define registers a flag for each setting, in the order of the contract.
func (c *config) define(flags *flag.FlagSet) {
	flags.Func("host", "address to listen on (default 127.0.0.1)", func(text string) (err error) {
		c.host, err = netip.ParseAddr(text)
		return err
	})
	number(flags, &c.port, "port", 3000, 0, math.MaxUint16, "port of the WebSocket; 0 lets the kernel pick")
	number(flags, &c.metricsPort, "metrics-port", 0, 0, math.MaxUint16, "port of /stats and /metrics; 0 lets the kernel pick")
	flags.Func("inference-url", "the inference, as http://host:port (default http://127.0.0.1:9000)", func(text string) (err error) {
		c.inferenceURL, err = parseInferenceURL(text)
		return err
	})
	number(flags, &c.echo.cpuPasses, "cpu-passes", 4, 1, 65_536, "passes that the inference makes over each batch")
	number(flags, &c.echo.modelDelayMS, "model-delay-ms", 75, 0, math.MaxInt64, "the model's delay that partials name; no other effect")
	duration(flags, &c.flushInterval, "flush-interval-ms", 1000, 10, 60_000, "time between two flush ticks of a session")
	duration(flags, &c.flushPhaseJitter, "flush-phase-jitter-ms", 0, 0, 60_000, "a session's ticks are shifted once by a random time of 0 to this")
	duration(flags, &c.inferenceTimeout, "inference-timeout-ms", 2000, 1, 600_000, "longest time from a tick to the end of the inference's answer")
	number(flags, &c.inferenceHTTPClients, "inference-http-clients", 2, 1, 4096, "HTTP/2 connections to the inference; each session keeps to one")
	number(flags, &c.workerThreads, "worker-threads", 0, 0, 1024, "CPUs that the runtime uses at once; 0: as many as may be used")
	number(flags, &c.maxBufferedFrames, "max-buffered-frames", 200, 1, 100_000, "frames that may wait in a session, beside the batch in flight")
	number(flags, &c.maxConnections, "max-connections", 0, 0, math.MaxInt64, "connections that may be open; 0: no limit")
}

// number defines a flag for an integer from low to high, with value as its default.
func number[T ~int | ~uint16 | ~uint32 | ~uint64](flags *flag.FlagSet, target *T, name string, value, low, high uint64, usage string) {
	*target = T(value)
	integer(flags, func(parsed uint64) { *target = T(parsed) }, name, value, low, high, usage)
}

// duration defines a flag for a duration of low to high whole milliseconds.
func duration(flags *flag.FlagSet, target *time.Duration, name string, value, low, high uint64, usage string) {
	*target = time.Duration(value) * time.Millisecond
	set := func(parsed uint64) { *target = time.Duration(parsed) * time.Millisecond }
	integer(flags, set, name, value, low, high, usage+", in milliseconds")
}

func integer(flags *flag.FlagSet, set func(uint64), name string, value, low, high uint64, usage string) {
	flags.Func(name, fmt.Sprintf("%s (default %d)", usage, value), func(text string) error {
		parsed, err := strconv.ParseUint(text, 10, 64)
		if err != nil || parsed < low || parsed > high {
			return fmt.Errorf("it must be an integer from %d to %d", low, high)
		}
		set(parsed)
		return nil
	})
}

// parseInferenceURL accepts http://host:port only; a single trailing slash is removed.
func parseInferenceURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(parsed.Port(), 10, 16)
	address := url.URL{Scheme: "http", Host: parsed.Host}
	if err != nil || port == 0 || parsed.Hostname() == "" || strings.TrimSuffix(text, "/") != address.String() {
		return nil, errors.New("it must be http://host:port")
	}
	return &address, nil
}
