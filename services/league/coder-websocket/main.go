// Sends back what it gets. Usage: server PORT
package main

import (
	"context"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/coder/websocket"
)

func handle(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		if err := echo(r.Context(), c); err != nil {
			return
		}
	}
}

func echo(ctx context.Context, c *websocket.Conn) error {
	kind, r, err := c.Reader(ctx)
	if err != nil {
		return err
	}
	w, err := c.Writer(ctx, kind)
	if err != nil {
		return err
	}
	if _, err = io.Copy(w, r); err != nil {
		return err
	}
	return w.Close()
}

func main() {
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(handle)))
}
