package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/retryproxy/retryproxy/internal/adminclient"
	"github.com/retryproxy/retryproxy/internal/config"
)

// TestMain lets scripts run this binary as retryproxy, including signals, and as the upstream of one.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"retryproxy": main, "upstream": failingUpstream})
}

// failingUpstream is the program `upstream SOCKET DELAY`. It responds to each request with 503, after
// the delay.
func failingUpstream() {
	delay, err := time.ParseDuration(os.Args[2])
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("unix", os.Args[1])
	if err != nil {
		panic(err)
	}
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(delay)
		http.Error(w, "busy", http.StatusServiceUnavailable)
	})))
}

type leakChecked struct{ *testing.M }

func (l leakChecked) Run() int {
	code := l.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		return 1
	}
	return code
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"await":  await,
			"link":   link,
			"post":   postAdmin,
			"signal": sendSignal,
		},
	})
}

// patience is how long a test waits for something; only a failure takes that long.
const patience = time.Minute

// await ADDRESS PATH TEXT asks the admin listener until its response contains the text.
func await(ts *testscript.TestScript, _ bool, args []string) {
	a, err := config.ParseAddress(args[0])
	ts.Check(err)
	var body string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		_, body, _ = adminclient.Send(context.Background(), a, "GET", args[1]) // no response until it listens
		if strings.Contains(body, args[2]) {
			return
		}
	}
	ts.Fatalf("%s%s does not say %q in %v but\n%s", args[0], args[1], args[2], patience, body)
}

// postAdmin is the command `post ADDRESS PATH TEXT`: it posts to the admin listener, whose response
// must be the text.
func postAdmin(ts *testscript.TestScript, _ bool, args []string) {
	a, err := config.ParseAddress(args[0])
	ts.Check(err)
	if _, body, err := adminclient.Send(context.Background(), a, "POST", args[1]); err != nil || body != args[2] {
		ts.Fatalf("%s%s: %q, %v; expected %q", args[0], args[1], body, err, args[2])
	}
}

// sendSignal is the command `signal NAME`: it sends TERM, INT or HUP to the background command.
// testscript's own kill only sends INT and KILL.
func sendSignal(ts *testscript.TestScript, _ bool, args []string) {
	sig := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP}[args[0]]
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(sig))
	}
}

// link TARGET LINK atomically replaces a symlink, as the kubelet does for a ConfigMap.
func link(ts *testscript.TestScript, _ bool, args []string) {
	name := ts.MkAbs(args[1])
	ts.Check(os.Symlink(args[0], name+".tmp"))
	ts.Check(os.Rename(name+".tmp", name))
}
