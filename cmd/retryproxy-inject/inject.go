package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/retryproxy/retryproxy/internal/companion"
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

// defaultImage returns the name that `make image` gives the image; a cluster rarely has it.
func (o *outside) defaultImage() string { return "retryproxy:" + o.Version }

func runInject(out *outside) error {
	f := flag.NewFlagSet("retryproxy-inject", flag.ContinueOnError)
	o := inject.Default(out.defaultImage())
	o.CommandFlags(f)
	var files []string
	f.Func("f", "`FILE` of manifests, - for standard input (the default); may be repeated", func(name string) error {
		files = append(files, name)
		return nil
	})
	if err := companion.Parse(f, injectUsage, out.Args, out.Stdout); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return fmt.Errorf("%w: %w", companion.ErrUsage, err)
	}
	input, err := read(files, out.Stdin)
	if err != nil {
		return err
	}
	result, err := inject.Stream(input, o)
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
