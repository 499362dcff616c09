// Remote procedure `echo`, and channels that clients subscribe and publish to. Usage: server PORT
package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/centrifugal/centrifuge"
)

// Every client is let in without a token.
func anonymous(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := centrifuge.SetCredentials(r.Context(), &centrifuge.Credentials{})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func main() {
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(_ centrifuge.SubscribeEvent, reply centrifuge.SubscribeCallback) {
			reply(centrifuge.SubscribeReply{}, nil)
		})
		client.OnPublish(func(_ centrifuge.PublishEvent, reply centrifuge.PublishCallback) {
			reply(centrifuge.PublishReply{}, nil)
		})
		client.OnRPC(func(event centrifuge.RPCEvent, reply centrifuge.RPCCallback) {
			reply(centrifuge.RPCReply{Data: event.Data}, nil)
		})
	})
	if err := node.Run(); err != nil {
		log.Fatal(err)
	}
	http.Handle("/connection/websocket", anonymous(centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{})))
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}
