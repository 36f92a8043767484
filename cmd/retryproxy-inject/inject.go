package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/internal/inject"
)

const injectUsage = `Usage: retryproxy inject [-f FILE]... [flags]
       retryproxy webhook --cert FILE [flags]

Reads Kubernetes manifests and prints them with a retryproxy sidecar in every Pod
template (Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, Pod),
through which the traffic goes. Other documents are printed unchanged, and so is
everything that a template already sets. If something cannot be done, nothing is
printed and the exit code is 1.

  retryproxy inject -f app.yaml | kubectl apply -f -
  retryproxy inject -f app.yaml --outbound-env API_URL

By default the sidecar is in front of the application (inbound): clients reach it
at the port that the Service targets. With --outbound-env or --outbound-host it is
in front of a remote service instead; add --inbound to have both. Annotations of a
Pod template override flags (docs/reference/kubernetes.md).

Flags:
`

// list is a flag that may be repeated, or contain commas.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(s string) error {
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*l = append(*l, part)
		}
	}
	return nil
}

// settingsFlag collects NAME=VALUE. A value may contain commas.
type settingsFlag struct{ to *[]inject.Setting }

func (s settingsFlag) String() string { return "" }

func (s settingsFlag) Set(text string) error {
	setting, err := inject.ParseSetting(text)
	if err == nil {
		*s.to = append(*s.to, setting)
	}
	return err
}

type hostsFlag struct{ to *[]inject.HostAlias }

func (h hostsFlag) String() string { return "" }

func (h hostsFlag) Set(text string) error {
	alias, err := inject.ParseHostAlias(text)
	if err == nil {
		*h.to = append(*h.to, alias)
	}
	return err
}

// minor is a version of Kubernetes, such as 1.30.
type minor struct{ to *int }

func (m minor) String() string {
	if m.to == nil {
		return ""
	}
	return "1." + strconv.Itoa(*m.to)
}

func (m minor) Set(s string) error {
	n, err := strconv.Atoi(strings.TrimPrefix(s, "1."))
	if err != nil || !strings.HasPrefix(s, "1.") || n < 20 {
		return fmt.Errorf("expected a version such as 1.30")
	}
	*m.to = n
	return nil
}

// defaultImage returns the name that `make image` gives the image; a cluster rarely has it.
func (o *outside) defaultImage() string { return "retryproxy:" + o.Version }

// options adds the flags that inject and webhook share.
func options(f *flag.FlagSet, image string) *inject.Options {
	o := inject.Default(image)
	f.StringVar(&o.Image, "image", o.Image, "`image` of the sidecar, as your cluster pulls it")
	f.StringVar(&o.PullPolicy, "pull-policy", o.PullPolicy, "Always, IfNotPresent or Never")
	f.Var(minor{&o.Kubernetes}, "kubernetes", "oldest `version` of Kubernetes that the result has to run on; before 1.29 the sidecar is an ordinary container")
	f.Var(settingsFlag{&o.Settings}, "set", "`NAME=VALUE` of a setting of every sidecar, with or without RETRYPROXY_; may be repeated")
	f.Var(settingsFlag{&o.InboundSettings}, "set-inbound", "`NAME=VALUE`: the same for inbound sidecars only")
	f.Var(settingsFlag{&o.OutboundSettings}, "set-outbound", "`NAME=VALUE`: the same for outbound sidecars only")
	f.StringVar(&o.CPURequest, "cpu-request", o.CPURequest, "CPU request of a sidecar, a `quantity`")
	f.StringVar(&o.MemoryRequest, "memory-request", o.MemoryRequest, "memory request of a sidecar, a `quantity`")
	f.StringVar(&o.MemoryLimit, "memory-limit", o.MemoryLimit, "memory limit of a sidecar, a `quantity`")
	return &o
}

func runInject(out *outside) error {
	f := flag.NewFlagSet("retryproxy-inject", flag.ContinueOnError)
	o := options(f, out.defaultImage())
	var files, env, only list
	f.Var(&files, "f", "`FILE` of manifests, - for standard input (the default); may be repeated")
	f.BoolVar(&o.Inbound, "inbound", false, "put a sidecar in front of the application; the default without --outbound-env and --outbound-host")
	f.StringVar(&o.InboundPort, "inbound-port", "", "`name or number` of the application's port; default: the one that a Service in the input targets, else the only one")
	f.BoolVar(&o.ServiceElsewhere, "service-elsewhere", false, "you point the Service at the sidecar's port yourself, because it is not in the input")
	f.BoolVar(&o.LeadServices, "lead-services", false, "point Services that target a port by number at the sidecar; only if all their Pods get one, because Pods without it do not serve that port")
	f.Var(&env, "outbound-env", "`NAME` of a variable of the application that holds the URL of a remote service; may be repeated")
	f.Var(hostsFlag{&o.OutboundHosts}, "outbound-host", "`HOST:PORT=UPSTREAM`: the name HOST becomes loopback, where the sidecar listens on PORT and sends to UPSTREAM; may be repeated")
	f.StringVar(&o.Container, "container", "", "`name` of the application's container, if there are several")
	f.StringVar(&o.ConfigMap, "config-map", "", "`name` of a ConfigMap whose key env has settings; they are read again when it changes")
	f.Var(&only, "only", "`kind/name` or name of a workload to change; others stay as they are; may be repeated")
	if err := parse(f, injectUsage, out.Args, out.Stdout); err != nil {
		return err
	}
	o.OutboundEnv, o.Only = env, only
	if err := o.Check(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	input, err := read(files, out.Stdin)
	if err != nil {
		return err
	}
	result, err := inject.Stream(input, *o)
	if err != nil {
		return err
	}
	tell(out.Stderr, result)
	if len(result.Changed) > 0 && o.Image == out.defaultImage() {
		fmt.Fprintf(out.Stderr, "note: the image is %s; name the one that your cluster pulls with --image\n", o.Image)
	}
	_, err = out.Stdout.Write(result.Output)
	return err
}

// read joins the files into one stream.
func read(files []string, stdin io.Reader) ([]byte, error) {
	if len(files) == 0 {
		files = []string{"-"}
	}
	var all []byte
	for i, name := range files {
		content, err := readOne(name, stdin)
		if err != nil {
			return nil, err
		}
		if i > 0 && !strings.HasPrefix(string(content), "---") {
			all = append(all, "---\n"...)
		}
		all = append(all, content...)
		if len(all) > 0 && all[len(all)-1] != '\n' && i < len(files)-1 {
			all = append(all, '\n')
		}
	}
	return all, nil
}

func readOne(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

// tell writes what was changed, and hints for the user, to w.
func tell(w io.Writer, r *inject.Result) {
	for _, note := range r.Notes {
		fmt.Fprintf(w, "note: %s: %s\n", note.Object, note.Text)
	}
	if len(r.Changed) == 0 {
		fmt.Fprintln(w, "nothing to change")
		return
	}
	fmt.Fprintf(w, "changed: %s\n", strings.Join(r.Changed, ", "))
}
