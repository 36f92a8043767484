package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/process"
)

// A process is the application when its environment says so.
const (
	roleVariable = "RESTART_ROLE"
	roleApp      = "app"
)

func main() {
	if os.Getenv(roleVariable) == roleApp {
		command.Main("restart app", runApp)
		return
	}
	command.Main("restart", run)
}

// options are the flags.
type options struct {
	proxy    string
	before   int           // responses that the application gives before that
	inHand   int           // requests that the application has when it is killed
	later    int           // that come while it is down
	down     time.Duration // from the kill to the start of the next process
	answer   time.Duration // time that the application needs for a request
	patience time.Duration // of clients
	runs     int
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("restart", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the retryproxy to run")
	f.IntVar(&o.before, "before", 1000, "good responses before the requests in hand")
	f.IntVar(&o.inHand, "requests", 1000, "requests in hand at the kill")
	f.IntVar(&o.later, "later", 200, "requests that come while the application is down")
	f.DurationVar(&o.down, "down", 2*time.Second, "time from the kill to the next start")
	f.DurationVar(&o.answer, "answer", 20*time.Millisecond, "time that the application needs for a response")
	f.DurationVar(&o.patience, "patience", 2*time.Minute, "time after which a client counts as lost")
	f.IntVar(&o.runs, "runs", 3, "runs")
	return o, command.Parse(f, args, o.validate)
}

func (o *options) validate() error {
	switch {
	case o.inHand < 1 || o.inHand > 100_000 || o.before < 0 || o.before > 1_000_000 || o.later < 0 || o.later > 100_000:
		return errors.New("requests must be 1 to 100000, later 0 to 100000, before 0 to 1000000")
	case o.down < 0 || o.answer < 0 || o.patience <= 0 || o.down > time.Hour || o.answer > time.Hour:
		return errors.New("down and answer must be 0s to 1h, patience above 0s")
	case o.runs < 1 || o.runs > 1000:
		return errors.New("runs must be 1 to 1000")
	}
	return nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var found error
	for n := range o.runs {
		r, err := playThrough(ctx, o)
		if err != nil {
			return fmt.Errorf("run %d: %w", n+1, err)
		}
		fmt.Fprintf(stdout, "run %d: %s\n", n+1, r)
		for _, line := range r.losses {
			fmt.Fprintln(stdout, "  lost:", line)
		}
		if r.lost > 0 {
			found = command.ErrFound
		}
	}
	return found
}

// playThrough plays a run through a retryproxy of its own.
func playThrough(ctx context.Context, o *options) (*result, error) {
	free, err := process.FreeAddresses(2)
	if err != nil {
		return nil, err
	}
	listen, app := free[0], free[1]
	cmd := exec.Command(o.proxy)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"RETRYPROXY_LISTEN=" + listen, "RETRYPROXY_ADMIN_LISTEN=off", "RETRYPROXY_UPSTREAM=http://" + app}
	proxy, err := process.Start(cmd, nil)
	if err != nil {
		return nil, err
	}
	defer proxy.Kill()
	if err := proxy.AwaitPort(listen); err != nil {
		return nil, fmt.Errorf("%s: %w; it said:\n%s", o.proxy, err, proxy.Lines())
	}
	return play(ctx, o, listen, app)
}
