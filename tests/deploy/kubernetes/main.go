// Reads Kubernetes manifests as Kubernetes does, by its own types: a field that it has not, or of another type, is an error. Prints the
// objects as JSON, one a line.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

func read(document []byte) (any, error) {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return nil, err
	}
	var object any
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		object = new(apps.Deployment)
	case "v1 Service":
		object = new(core.Service)
	case "networking.k8s.io/v1 Ingress":
		object = new(networking.Ingress)
	case "policy/v1 PodDisruptionBudget":
		object = new(policy.PodDisruptionBudget)
	default:
		return nil, fmt.Errorf("%q %q is of no kind that is known here", kind.APIVersion, kind.Kind)
	}
	return object, yaml.UnmarshalStrict(document, object)
}

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			var object any
			if object, err = read(document); err != nil {
				break
			}
			if err = json.NewEncoder(os.Stdout).Encode(object); err != nil {
				break
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
