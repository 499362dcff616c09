// Command kube is every program of a Kubernetes node in one file, so that their shared packages are linked once.
// The name by which it is called (a symbolic link, or else the first argument) says which program runs.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { component(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { component(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { component(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() { component(kubelet.NewKubeletCommand(context.Background())) },
	"kube-proxy":              func() { component(proxy.NewProxyCommand()) },
}

func main() {
	program, known := programs[filepath.Base(os.Args[0])]
	if !known && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		program, known = programs[os.Args[0]]
	}
	if !known {
		names := make([]string, 0, len(programs))
		for name := range programs {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "kube: call it by the name of a program: %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	program()
}

func component(command *cobra.Command) {
	os.Exit(cli.Run(command))
}
