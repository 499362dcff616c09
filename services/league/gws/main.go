// Sends back what it gets. Usage: server PORT
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/lxzan/gws"
)

type handler struct{ gws.BuiltinEventHandler }

func (handler) OnPing(socket *gws.Conn, payload []byte) {
	_ = socket.WritePong(payload)
}

func (handler) OnMessage(socket *gws.Conn, message *gws.Message) {
	defer message.Close()
	_ = socket.WriteMessage(message.Opcode, message.Bytes())
}

func main() {
	upgrader := gws.NewUpgrader(handler{}, &gws.ServerOption{
		ParallelEnabled:   true,
		Recovery:          gws.Recovery,
		PermessageDeflate: gws.PermessageDeflate{Enabled: false},
	})
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		socket, err := upgrader.Upgrade(w, r)
		if err != nil {
			return
		}
		// Reads in a goroutine of its own, so that the HTTP server's memory of the request can be collected.
		go socket.ReadLoop()
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
