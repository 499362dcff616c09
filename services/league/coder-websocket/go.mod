module wsladder/league/coder-websocket

go 1.26

require github.com/coder/websocket v1.8.15
