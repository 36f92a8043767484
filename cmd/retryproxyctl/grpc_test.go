package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// grpcServer answers as a gRPC server does: HTTP/2 without TLS and nothing else, with the status in a
// trailer.
func grpcServer(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := http.Server{Protocols: onlyH2C(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(body)
		w.Header().Set("Grpc-Status", "0")
	})}
	go s.Serve(l) //nolint:errcheck // it ends with Close
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func onlyH2C() *http.Protocols {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &p
}

// settingsOf returns the settings of an injected sidecar, without the addresses where it listens.
func settingsOf(t *testing.T, manifests, container string) (settings []string) {
	t.Helper()
	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					InitContainers []struct {
						Name string
						Env  []struct{ Name, Value string }
					} `yaml:"initContainers"`
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(manifests), &deployment); err != nil {
		t.Fatal(err)
	}
	for _, c := range deployment.Spec.Template.Spec.InitContainers {
		for _, e := range c.Env {
			if c.Name == container && !strings.HasSuffix(e.Name, "LISTEN") {
				settings = append(settings, strings.TrimPrefix(e.Name, "RETRYPROXY_")+"="+e.Value)
			}
		}
	}
	if len(settings) == 0 {
		t.Fatalf("no %s in\n%s", container, manifests)
	}
	return settings
}

// With http:// as its upstream the sidecar is ready as well, and every call fails.
func TestCallsReachAGRPCServerThroughWhatInjectMakes(t *testing.T) {
	port := grpcServer(t)
	manifest := fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: orders}
spec:
  template:
    metadata: {labels: {app: orders}}
    spec:
      containers:
      - name: app
        ports: [{name: api, containerPort: %[1]d}]
        readinessProbe: {grpc: {port: %[1]d}}
`, port)
	for name, tc := range map[string]struct {
		flags     []string
		container string
	}{
		"inbound":  {nil, "retryproxy-in"},
		"outbound": {[]string{"--outbound-host", fmt.Sprintf("stock:7000=h2c://127.0.0.1:%d", port)}, "retryproxy-out"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			args := append([]string{"inject", "--image", "i:1"}, tc.flags...)
			if code := run(context.Background(), &outside{args: args, stdin: strings.NewReader(manifest), stdout: &out, stderr: &errs}); code != exitOK {
				t.Fatalf("%d %s", code, errs.String())
			}
			p := startProxy(t, append(settingsOf(t, out.String(), tc.container), "DRAIN_DELAY=0s")...)
			client := http.Client{Transport: &http.Transport{Protocols: onlyH2C()}}
			defer client.CloseIdleConnections()
			response, err := client.Post("http://"+p.listen+"/orders.Orders/Place", "application/grpc", strings.NewReader("\x00\x00\x00\x00\x01a"))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close() //nolint:errcheck // only a test
			body, err := io.ReadAll(response.Body)
			if err != nil || string(body) != "\x00\x00\x00\x00\x01a" || response.Trailer.Get("Grpc-Status") != "0" {
				t.Errorf("%v: %v %q, trailers %v, headers %v", err, response.Status, body, response.Trailer, response.Header)
			}
		})
	}
}
