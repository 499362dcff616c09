// Sends back what it gets. Usage: server PORT
package main

import (
	"log"
	"net"
	"net/http"
	"os"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

func serve(conn net.Conn) {
	defer conn.Close()
	for {
		message, op, err := wsutil.ReadClientData(conn)
		if err != nil {
			return
		}
		if err := wsutil.WriteServerMessage(conn, op, message); err != nil {
			return
		}
	}
}

func main() {
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, _, err := ws.UpgradeHTTP(r, w)
		if err != nil {
			return
		}
		go serve(conn)
	})))
}
