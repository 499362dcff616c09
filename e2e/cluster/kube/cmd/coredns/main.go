// Command coredns is CoreDNS with only the plugins that manifests/coredns.yaml uses.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order in which a query passes them.
	dnsserver.Directives = []string{"ready", "health", "errors", "cache", "kubernetes"}
	coremain.Run()
}
