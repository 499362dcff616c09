// Command go-nethttp is the speech-to-text gateway on net/http and coder/websocket. services/README.md ("Gateways") is its
// contract.
//
// main.go starts the gateway and prints the ready line; config.go has the settings. server.go accepts and upgrades
// connections. socket.go is the net.Conn below the library, session.go the session on it: backlog.go holds its audio,
// schedule.go computes when ticks are due, inference.go sends requests, recognition.go parses responses, protocol.go writes
// the messages. metrics.go keeps the books and serves them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

const (
	name    = "go-nethttp"
	version = "0.1.0"
)

func main() {
	log.SetFlags(log.LstdFlags | log.Lmsgprefix)
	config, err := parseConfig(os.Args[1:], os.LookupEnv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(2)
	case config.version:
		fmt.Printf("%s %s (%s)\n", name, version, runtime.Version())
		return
	}
	tune(config)
	if err := run(config); err != nil {
		log.Fatalf("%s: %v", name, err)
	}
}

// tune sets GC percent, memory limit and GOMAXPROCS where the environment doesn't. The heap is small and most of it is
// audio that lives for a second: collecting it less often costs some megabytes, and the container's limit takes precedence.
func tune(c config) {
	if _, isSet := os.LookupEnv("GOGC"); !isSet {
		debug.SetGCPercent(200)
	}
	if _, isSet := os.LookupEnv("GOMEMLIMIT"); !isSet {
		if limit, err := containerMemory(); err == nil {
			debug.SetMemoryLimit(limit / 5 * 4)
		}
	}
	if c.workerThreads > 0 {
		runtime.GOMAXPROCS(c.workerThreads)
	}
}

// containerMemory returns the memory limit of this cgroup in bytes, or an error if there is none.
func containerMemory() (int64, error) {
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// run serves clients until SIGTERM or SIGINT, and then until all sessions have ended.
func run(c config) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	// Go listens with the kernel's limit of the backlog (net.core.somaxconn).
	clients, err := net.Listen("tcp", netip.AddrPortFrom(c.host, c.port).String())
	if err != nil {
		return fmt.Errorf("failed to listen for clients: %w", err)
	}
	metrics, err := net.Listen("tcp", netip.AddrPortFrom(c.host, c.metricsPort).String())
	if err != nil {
		return fmt.Errorf("failed to listen for readers of metrics: %w", err)
	}
	books := newBooks()
	go func() {
		server := &http.Server{Handler: metricsPort(books), ReadHeaderTimeout: headerTimeout}
		log.Fatalf("%s: the metrics port failed: %v", name, server.Serve(metrics))
	}()
	if err := announce(clients.Addr(), metrics.Addr()); err != nil {
		return err
	}
	return newGateway(c, books).serve(ctx, clients)
}

// announce prints the ready line: one JSON object on stdout with both addresses and the process id.
func announce(clients, metrics net.Addr) error {
	err := json.NewEncoder(os.Stdout).Encode(struct {
		Event          string `json:"event"`
		Address        string `json:"address"`
		MetricsAddress string `json:"metrics_address"`
		PID            int    `json:"pid"`
	}{"ready", clients.String(), metrics.String(), os.Getpid()})
	if err != nil {
		return fmt.Errorf("failed to print the ready line: %w", err)
	}
	return nil
}
