// An MQTT broker that lets everybody publish and subscribe. Usage: server PORT
package main

import (
	"log"
	"os"
	"os/signal"
	"syscall"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)

	server := mqtt.New(nil)
	_ = server.AddHook(new(auth.AllowHook), nil)
	if err := server.AddListener(listeners.NewWebsocket(listeners.Config{ID: "ws1", Address: "127.0.0.1:" + os.Args[1]})); err != nil {
		log.Fatal(err)
	}
	if err := server.Serve(); err != nil {
		log.Fatal(err)
	}
	<-stop
	_ = server.Close()
}
