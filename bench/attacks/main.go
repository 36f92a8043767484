package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Exit codes.
const (
	exitOK        = 0
	exitNotStood  = 1
	exitUsage     = 2
	longestAttack = time.Hour
)

// options are the flags.
type options struct {
	proxy string
	lasts time.Duration
	only  string
	json  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("attacks", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.proxy, "proxy", "bin/retryproxy", "the program to attack")
	f.DurationVar(&o.lasts, "for", 10*time.Second, "how long each attack lasts")
	f.StringVar(&o.only, "only", "", "only attacks whose name has this in it")
	f.BoolVar(&o.json, "json", false, "print the results as JSON, one a line")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.lasts < 100*time.Millisecond || o.lasts > longestAttack {
		return nil, errors.New("--for must be 100ms to 1h")
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(stderr, "attacks:", err)
		return exitUsage
	}
	upstream, stop, err := startUpstream()
	if err != nil {
		fmt.Fprintln(stderr, "attacks:", err)
		return exitUsage
	}
	defer stop()
	return o.attackAll(ctx, upstream, stdout, stderr)
}

func (o *options) attackAll(ctx context.Context, upstream string, stdout, stderr io.Writer) int {
	code, tried, table := exitOK, 0, ""
	for _, a := range slices.Concat(http2Attacks, http1Attacks, trustAttacks) {
		if !strings.Contains(a.name, o.only) {
			continue
		}
		if title := a.columns(); !o.json && title != table {
			table = title
			fmt.Fprint(stdout, title)
		}
		tried++
		r, err := play(ctx, &a, o.proxy, upstream, o.lasts)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(stderr, "attacks: %s: %v\n", a.name, err)
			return exitNotStood
		}
		if o.json {
			_ = json.NewEncoder(stdout).Encode(r)
		} else {
			r.print(stdout)
		}
		for _, wrong := range r.wrong() {
			fmt.Fprintf(stderr, "attacks: %s: %s\n", a.name, wrong)
			code = exitNotStood
		}
	}
	if tried == 0 {
		fmt.Fprintf(stderr, "attacks: none has %q in its name\n", o.only)
		return exitUsage
	}
	return code
}
