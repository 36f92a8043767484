// Package image tests the container image: that two ways to build it give the
// same bytes, what is in it, and how it runs.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// maxBytes is what the image may weigh: 16 MiB.
const maxBytes = 16 << 20

// One is built as users build it, within the builder image; the other is
// compiled on this machine, in another directory, and put together by another
// recipe. All that they have in common are the sources and the Go version.
func TestImageIsReproducible(t *testing.T) {
	engine.Asked(t, "image")
	built, quick := build(t), engine.Image(t)
	a, b := files(t, built), files(t, quick)
	for name, digest := range a {
		if b[name] != digest {
			t.Errorf("%s: %s in one, %q in the other", name, digest, b[name])
		}
	}
	const layers = "{{json .RootFS.Layers}}"
	if x, y := engine.Inspect(t, built, layers), engine.Inspect(t, quick, layers); x != y || strings.Count(x, "sha256:") != 1 {
		t.Errorf("layers %s and %s", x, y)
	}
}

// build makes the image as `make image` does and gives its name.
func build(t *testing.T) string {
	t.Helper()
	engine.Run(t, nil, "bash", "deploy/test/stand-ins", "golang")
	engine.Run(t, nil, "bash", "deploy/image/build", "retryproxy:test")
	return "retryproxy:test"
}

// files are the digests of the image's files and the names of its directories.
func files(t *testing.T, image string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for header, content := range contents(t, image) {
		all[header.Name] = fmt.Sprintf("%o %x", header.Mode, sha256.Sum256(content))
	}
	return all
}

// contents iterates over what is in the image.
func contents(t *testing.T, image string) func(func(*tar.Header, []byte) bool) {
	t.Helper()
	name := engine.Name("export")
	engine.Docker(t, "create", "--name", name, image)
	engine.Cleanup(t, func() { engine.Remove(t, name) })
	out, err := exec.Command("docker", "export", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(*tar.Header, []byte) bool) {
		for r := tar.NewReader(bytes.NewReader(out)); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			if !made(header.Name) && !yield(header, content) {
				return
			}
		}
	}
}

// made tells what the engine puts into every container.
func made(name string) bool {
	switch name {
	case ".dockerenv", "etc/", "etc/hostname", "etc/hosts", "etc/mtab", "etc/resolv.conf":
		return true
	}
	return strings.HasPrefix(name, "dev/") || strings.HasPrefix(name, "proc/") || strings.HasPrefix(name, "sys/")
}

func TestImageHoldsOneBinaryAndCertificates(t *testing.T) {
	engine.Asked(t, "image")
	image := engine.Image(t)
	var names []string
	for header, content := range contents(t, image) {
		names = append(names, header.Name)
		switch header.Name {
		case "retryproxy":
			checkBinary(t, content, elf.EM_X86_64, elf.EM_AARCH64)
		case "etc/ssl/certs/ca-certificates.crt":
			if n := bytes.Count(content, []byte("BEGIN CERTIFICATE")); n < 50 {
				t.Errorf("%d certificates", n)
			}
		}
	}
	if got, want := strings.Join(names, " "), "etc/ssl/ etc/ssl/certs/ etc/ssl/certs/ca-certificates.crt retryproxy"; got != want {
		t.Errorf("files %s, want %s", got, want)
	}
	if engine.Inspect(t, image, "{{.Architecture}}") == "amd64" {
		sizeAsDocumented(t, engine.Inspect(t, image, "{{.Size}}"))
	}
	if size := engine.Inspect(t, image, "{{.Size}}"); len(size) > 8 || len(size) == 8 && size > fmt.Sprint(maxBytes) {
		t.Errorf("%s bytes, at most %d wanted", size, maxBytes)
	}
}

// checkBinary wants a static program for one of the machines.
func checkBinary(t *testing.T, content []byte, machines ...elf.Machine) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it wants a dynamic loader")
		}
	}
	for _, m := range machines {
		if f.Machine == m {
			return
		}
	}
	t.Errorf("it is for %v, want one of %v", f.Machine, machines)
}

func TestImageIsMadeForBothArchitectures(t *testing.T) {
	engine.Asked(t, "image")
	engine.Run(t, nil, "bash", "deploy/image/build", "retryproxy:test", "amd64", "arm64")
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		image := "retryproxy:test-" + arch
		if got := engine.Inspect(t, image, "{{.Os}}/{{.Architecture}}"); got != "linux/"+arch {
			t.Errorf("%s says it is for %s", image, got)
		}
		found := false
		for header, content := range contents(t, image) {
			if header.Name == "retryproxy" {
				found = true
				checkBinary(t, content, machine)
			}
		}
		if !found {
			t.Errorf("%s has no /retryproxy", image)
		}
	}
}

func TestImageSaysWhatItIs(t *testing.T) {
	engine.Asked(t, "image")
	image := engine.Image(t)
	var labels map[string]string
	if err := json.Unmarshal([]byte(engine.Inspect(t, image, "{{json .Config.Labels}}")), &labels); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"title", "description", "source", "documentation", "licenses", "version", "revision", "created"} {
		if labels["org.opencontainers.image."+name] == "" {
			t.Errorf("no label %s", name)
		}
	}
	if got := engine.Inspect(t, image, "{{.Config.User}}"); got != "65532:65532" {
		t.Errorf("user %q", got)
	}
	revision := engine.Run(t, nil, "git", "rev-parse", "--short=12", "HEAD")
	if got := engine.Docker(t, "run", "--rm", image, "version"); !strings.Contains(got, revision) {
		t.Errorf("version says %s, want revision %s", got, revision)
	}
}

// hard is how a careful user runs it.
var hard = []string{"--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--pids-limit=64", "--memory=64m"}

func TestImageRunsWithoutRights(t *testing.T) {
	engine.Asked(t, "image")
	image, network := engine.Image(t), engine.Network(t)
	upstream := engine.Start(t, "upstream", "--network", network, "--env=FAIL_EVERY=3", engine.Example(t), "flaky")
	args := append([]string{"--network", network, "--health-interval=1s", "--env=RETRYPROXY_POSITION=inbound", "--env=TZ=Asia/Tokyo",
		"--env=RETRYPROXY_UPSTREAM=http://" + upstream + ":3000"}, hard...)
	proxy := engine.Start(t, "proxy", append(args, image)...)
	engine.Await(t, "health", func() bool { return engine.Inspect(t, proxy, "{{.State.Health.Status}}") == "healthy" })

	checkProcess(t, proxy)
	checkNoShell(t, proxy)
	checkTraffic(t, engine.Address(t, proxy))
	if logs := all(t, proxy); !strings.Contains(logs, "+09:00") {
		t.Errorf("TZ=Asia/Tokyo has no effect on the log:\n%s", logs)
	}
	checkDrain(t, proxy)
}

// all is the container's log.
func all(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("docker", "logs", name).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// checkProcess asks the kernel, not the engine, what the process may do.
func checkProcess(t *testing.T, name string) {
	t.Helper()
	pid := engine.Inspect(t, name, "{{.State.Pid}}")
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000",
		"CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	mounts, err := os.ReadFile("/proc/" + pid + "/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[1] == "/" && !strings.HasPrefix(f[3], "ro,") {
			t.Errorf("the root can be written to: %s", line)
		}
	}
}

func checkNoShell(t *testing.T, name string) {
	t.Helper()
	for _, shell := range []string{"/bin/sh", "sh", "/bin/bash", "/busybox/sh"} {
		if out, err := exec.Command("docker", "exec", name, shell, "-c", "true").CombinedOutput(); err == nil {
			t.Errorf("%s runs in it: %s", shell, out)
		}
	}
}

// checkTraffic wants every GET answered, though the upstream fails every third.
func checkTraffic(t *testing.T, address string) {
	t.Helper()
	const requests = 12
	for i := range requests {
		if status, body := engine.Get(fmt.Sprintf("http://%s:8080/orders/%d", address, i)); status != http.StatusOK {
			t.Errorf("request %d: %d %s", i, status, body)
		}
	}
	engine.Await(t, "count of retries", func() bool {
		_, metrics := engine.Get("http://" + address + ":9797/metrics")
		return strings.Contains(metrics, fmt.Sprintf("retryproxy_outcomes_total{outcome=\"recovered\",route=\"default\"} %d\n", requests/3))
	})
}

// checkDrain stops the container while a request is in flight, which is
// answered, and wants an orderly end that was not cut short.
func checkDrain(t *testing.T, name string) {
	t.Helper()
	address := engine.Address(t, name)
	answered := make(chan string, 1)
	go func() {
		status, body := engine.Get("http://" + address + ":8080/orders/last?delay=6s")
		answered <- fmt.Sprint(status, " ", body)
	}()
	engine.Await(t, "request in flight", func() bool {
		_, metrics := engine.Get("http://" + address + ":9797/metrics")
		return strings.Contains(metrics, "retryproxy_requests_in_flight{route=\"default\"} 1\n")
	})
	stopped := make(chan error, 1)
	go func() { stopped <- exec.Command("docker", "stop", "--time", "60", name).Run() }()
	if got := <-answered; !strings.HasPrefix(got, "200 ") {
		t.Errorf("the request in flight got %s", got)
	}
	select {
	case err := <-stopped:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(engine.Patience):
		t.Fatal("it does not stop")
	}
	if got := engine.Inspect(t, name, "{{.State.ExitCode}} {{.State.OOMKilled}}"); got != "0 false" {
		t.Errorf("exit code and OOM: %s", got)
	}
	if logs := all(t, name); !strings.Contains(logs, `"drained"`) {
		t.Errorf("it did not drain:\n%s", logs)
	}
}

// The webhook's image understands its command under the same restrictions, and
// has nothing else in it.
func TestWebhookImage(t *testing.T) {
	engine.Asked(t, "image")
	engine.Run(t, nil, "bash", "deploy/test/stand-ins", "golang")
	const image = "retryproxyctl:test"
	engine.Run(t, nil, "docker", "build", "-f", "deploy/image/ctl/Dockerfile", "--build-arg", "VERSION=1.2.3", "-t", image, ".")
	if got := engine.Inspect(t, image, "{{.Config.User}}"); got != "65532:65532" {
		t.Errorf("user %q", got)
	}
	args := append([]string{"run", "--rm", "--network=none"}, hard...)
	if got := engine.Docker(t, append(args, image, "webhook", "--help")...); !strings.Contains(got, "/mutate") {
		t.Errorf("webhook --help says %q", got)
	}
	regular := 0
	for header := range contents(t, image) {
		// The engine itself makes /etc/hosts and the like, all empty.
		if header.Typeflag == tar.TypeReg && header.Size > 0 {
			regular++
			if header.Name != "retryproxyctl" {
				t.Errorf("there is %s", header.Name)
			}
		}
	}
	if regular != 1 {
		t.Errorf("%d files, want the binary alone", regular)
	}
}

// Alone, each process would take the whole of what is meant for all.
func TestImageThatCannotShareDoesNotStart(t *testing.T) {
	engine.Asked(t, "image")
	out, err := exec.Command("docker", "run", "--rm", "--network", "none", "-e", "RETRYPROXY_POSITION=outbound",
		"-e", "RETRYPROXY_UPSTREAM=http://192.0.2.1", "-e", "RETRYPROXY_SHARED=redis://192.0.2.2", engine.Image(t)).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("RETRYPROXY_SHARED")) || !bytes.Contains(out, []byte("image-full")) {
		t.Errorf("%v, it said:\n%s", err, out)
	}
}
