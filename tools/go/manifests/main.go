// Checks rendered manifests against the Go types of Kubernetes, Flux and the Prometheus operator, whose schemas
// kubeconform doesn't have: unknown fields, duplicate fields and wrong types are errors.
//
//	manifests FILE…              every object decodes strictly
//	manifests -plan FILE         prints the plan that the chart put into its ConfigMap
//	manifests -fits 1050m FILE   the pods of the tier with the highest CPU requests request no more than that in total
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	helm "github.com/fluxcd/helm-controller/api/v2"
	source "github.com/fluxcd/source-controller/api/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	plan := flag.Bool("plan", false, "print the plan of the chart's ConfigMap")
	fits := flag.String("fits", "", "most CPU that may be requested at once")
	flag.Parse()
	if err := run(flag.Args(), *plan, *fits); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(files []string, plan bool, fits string) error {
	if len(files) == 0 {
		return errors.New("name at least one file")
	}
	for _, file := range files {
		objects, err := decode(file)
		if err == nil {
			err = look(objects, plan, fits)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if !plan {
			fmt.Printf("%s: %d objects decode strictly\n", file, len(objects))
		}
	}
	return nil
}

func look(objects []runtime.Object, plan bool, fits string) error {
	if plan {
		return printPlan(objects)
	}
	if fits == "" {
		return nil
	}
	most, err := resource.ParseQuantity(fits)
	if err != nil {
		return err
	}
	if sum := atOnce(objects); sum.Cmp(most) > 0 {
		return fmt.Errorf("its pods request %s of CPU at once, which is more than %s", sum.String(), fits)
	}
	return nil
}

func decode(file string) ([]runtime.Object, error) {
	for _, add := range []func(*runtime.Scheme) error{helm.AddToScheme, source.AddToScheme, monitoring.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			return nil, err
		}
	}
	options := json.SerializerOptions{Yaml: true, Strict: true}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, options)
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var objects []runtime.Object
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if isEmpty(document) {
			continue
		}
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w, in:\n%s", err, document)
		}
		objects = append(objects, object)
	}
	if len(objects) == 0 {
		return nil, errors.New("nothing in it")
	}
	return objects, nil
}

// A document that has only comments is empty.
func isEmpty(document []byte) bool {
	for _, line := range bytes.Split(document, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}

func printPlan(objects []runtime.Object) error {
	for _, object := range objects {
		if config, ok := object.(*core.ConfigMap); ok && config.Data["plan.yaml"] != "" {
			fmt.Print(config.Data["plan.yaml"])
			return nil
		}
	}
	return errors.New("no ConfigMap has a plan.yaml")
}

// Sums the CPU requests of the operator, one service, the workers of one tier, and a pod of `helm test`.
func atOnce(objects []runtime.Object) resource.Quantity {
	var operator, service, workers, test resource.Quantity
	for _, object := range objects {
		switch object := object.(type) {
		case *apps.Deployment:
			if *object.Spec.Replicas > 0 {
				operator.Add(requested(object.Spec.Template.Spec))
			} else {
				raise(&service, requested(object.Spec.Template.Spec))
			}
		case *batch.Job:
			each := requested(object.Spec.Template.Spec)
			each.Mul(int64(*object.Spec.Parallelism))
			raise(&workers, each)
		case *core.Pod:
			raise(&test, requested(object.Spec))
		}
	}
	for _, part := range []resource.Quantity{service, workers, test} {
		operator.Add(part)
	}
	return operator
}

func requested(pod core.PodSpec) resource.Quantity {
	var sum resource.Quantity
	for _, container := range pod.Containers {
		sum.Add(*container.Resources.Requests.Cpu())
	}
	return sum
}

func raise(most *resource.Quantity, to resource.Quantity) {
	if to.Cmp(*most) > 0 {
		*most = to
	}
}
