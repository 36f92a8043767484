package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/retryproxy/retryproxy/ctl/inject"
)

// defaultImage returns the name that `make image` gives the image; a cluster rarely has it.
func defaultImage() string { return "retryproxy:" + version }

func injectCommand(o *outside) *cobra.Command {
	options := inject.Default(defaultImage())
	var files []string
	c := &cobra.Command{
		Use:   "inject [-f FILE]... [flags]",
		Short: "add the sidecar to Kubernetes manifests",
		Long: `Reads Kubernetes manifests and prints them with a retryproxy sidecar in every Pod
template (Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, Pod),
through which the traffic goes. Other documents are printed unchanged, and so is
everything that a template already sets. If something cannot be done, nothing is
printed and the exit code is 1.

  retryproxyctl inject -f app.yaml | kubectl apply -f -
  retryproxyctl inject -f app.yaml --outbound-env API_URL

By default the sidecar is in front of the application (inbound): clients reach it
at the port that the Service targets. With --outbound-env or --outbound-host it is
in front of a remote service instead; add --inbound to have both. Annotations of a
Pod template override flags (docs/reference/kubernetes.md).`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := options.Check(); err != nil {
				return wrong(c, err)
			}
			return runInject(o, options, files)
		},
	}
	f := c.Flags()
	f.StringArrayVarP(&files, "file", "f", nil, "`FILE` of manifests, - for standard input (the default); may be repeated")
	options.CommandFlags(f)
	complete(c, "pull-policy", "Always", "IfNotPresent", "Never")
	return c
}

func runInject(o *outside, options inject.Options, files []string) error {
	input, err := read(files, o.stdin)
	if err != nil {
		return err
	}
	result, err := inject.Stream(input, options)
	if err != nil {
		return err
	}
	tell(o.stderr, result)
	if len(result.Changed) > 0 && options.Image == defaultImage() {
		fmt.Fprintf(o.stderr, "note: the image is %s; name the one that your cluster pulls with --image\n", options.Image)
	}
	_, err = o.stdout.Write(result.Output)
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
