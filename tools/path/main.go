// Command path shows which files one request passes through. It copies the module, makes every
// function record its file and its caller's, builds the proxy, and sends it one keep-alive GET that
// gets a 503 and then a 200.
//
// An entry is a call into a file from another file, and a crossing one into a package from another.
// Every function counts, also those that the compiler inlines in the program itself. Calls by the
// standard library count as calls by the module's function above it. The crossings are listed by the
// package that calls, the one that is called, and the function.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const module = "github.com/retryproxy/retryproxy/"

// noting is the package that the instrumented functions call. The first SIGUSR1 starts recording,
// and the second writes the result.
const noting = `package noting

import ("fmt"; "os"; "os/signal"; "runtime"; "strings"; "sync"; "sync/atomic"; "syscall")

var (
	on    atomic.Bool
	mu    sync.Mutex
	calls []string
)

func init() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	go func() {
		<-asked
		on.Store(true)
		<-asked
		on.Store(false)
		mu.Lock()
		defer mu.Unlock()
		_ = os.WriteFile(os.Getenv("NOTES"), []byte(strings.Join(calls, "")), 0o600)
	}()
}

func Enter(file, function string) {
	if !on.Load() {
		return
	}
	var pcs [64]uintptr
	frames, from := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])]), "-"
	for f, more := frames.Next(); more && from == "-"; f, more = frames.Next() {
		if _, name, is := strings.Cut(f.File, "` + module + `"); is {
			from = name
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if from != file {
		calls = append(calls, fmt.Sprintln(from, file, function))
	}
}
`

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "path")
	check(err)
	defer os.RemoveAll(dir)
	check(copyModule(dir))
	report(request(dir))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// copyModule copies the tracked files to dir, with recording in every function of the proxy.
func copyModule(dir string) error {
	names, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "go.mod", "go.sum", "cmd/retryproxy", "ctl", "fleet", "internal", "metrics", "plot", "policy", "proxy", "sim").Output()
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(names)) {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) || strings.HasSuffix(name, "_test.go") {
			continue // deleted, or not part of the program
		}
		if err == nil && strings.HasSuffix(name, ".go") {
			text, err = instrument(name, text)
		}
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, name), text); err != nil {
			return err
		}
	}
	return write(filepath.Join(dir, "internal/noting/noting.go"), []byte(noting))
}

func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// instrument adds recording to every function in a file.
func instrument(name string, text []byte) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	out, done, notes := bytes.Buffer{}, 0, 0
	add := func(at token.Pos, what string) {
		offset := set.Position(at).Offset
		out.Write(text[done:offset])
		out.WriteString(what)
		done = offset
	}
	add(file.Name.End(), "; import noting \""+module+"internal/noting\"")
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			add(f.Body.Lbrace+1, fmt.Sprintf(" noting.Enter(%q, %q); ", name, f.Name.Name))
			notes++
		}
	}
	out.Write(text[done:])
	if notes == 0 {
		return text, nil
	}
	return out.Bytes(), nil
}

// request builds the copy in dir and returns the entries of one request with one retry.
func request(dir string) []byte {
	build := exec.Command("go", "build", "-trimpath", "-o", "retryproxy", "./cmd/retryproxy")
	build.Dir, build.Stderr = dir, os.Stderr
	check(build.Run())
	answers := make(chan int, 2)
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() {
		_ = http.Serve(upstream, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(<-answers) }))
	}()
	notes, socket := filepath.Join(dir, "notes"), filepath.Join(dir, "socket")
	p := exec.Command(filepath.Join(dir, "retryproxy"))
	p.Env = append(os.Environ(), "NOTES="+notes, "RETRYPROXY_LISTEN=unix:"+socket, "RETRYPROXY_ADMIN_LISTEN=127.0.0.1:0",
		"RETRYPROXY_UPSTREAM=http://"+upstream.Addr().String(), "RETRYPROXY_BACKOFF_BASE=10ms")
	p.Stderr = os.Stderr
	check(p.Start())
	defer func() { _ = p.Process.Kill() }()
	c := dial(socket)
	for _, codes := range [][]int{{200}, {503, 200}, {200}, {503, 200}} {
		for _, code := range codes {
			answers <- code
		}
		time.Sleep(50 * time.Millisecond)
		if last := len(codes) == 2; last {
			check(os.WriteFile(notes, nil, 0o600))
		}
		ask(c)
	}
	check(p.Process.Signal(syscall.SIGUSR1))
	time.Sleep(50 * time.Millisecond)
	answers <- 503
	answers <- 200
	ask(c)
	time.Sleep(50 * time.Millisecond)
	check(p.Process.Signal(syscall.SIGUSR1))
	time.Sleep(100 * time.Millisecond)
	text, err := os.ReadFile(notes)
	check(err)
	return text
}

func dial(socket string) net.Conn {
	for range 100 {
		if c, err := net.Dial("unix", socket); err == nil {
			return c
		}
		time.Sleep(50 * time.Millisecond)
	}
	log.Fatal("the proxy does not listen")
	return nil
}

// ask sends a request and reads its response.
func ask(c net.Conn) {
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	check(err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	check(err)
	_, err = io.Copy(io.Discard, res.Body)
	check(err)
	if res.StatusCode != 200 {
		log.Fatal(res.Status)
	}
}

// report prints how often each file was entered.
func report(entries []byte) {
	count, pairs, crossings := map[string]int{}, map[string]int{}, 0
	lines := strings.Split(strings.TrimSpace(string(entries)), "\n")
	for _, line := range lines {
		f := strings.Fields(line)
		count[f[1]]++
		if from, to := filepath.Dir(f[0]), filepath.Dir(f[1]); from != to {
			crossings++
			pairs[from+" -> "+to+" "+f[2]]++
		}
	}
	fmt.Printf("%d files, %d entries, %d crossings of packages\n", len(count), len(lines), crossings)
	rows(count)
	fmt.Println("crossings")
	rows(pairs)
}

// rows prints the counts, the largest first.
func rows(count map[string]int) {
	for _, name := range slices.SortedFunc(maps.Keys(count), func(a, b string) int { return cmp.Or(count[b]-count[a], cmp.Compare(a, b)) }) {
		fmt.Printf("%4d  %s\n", count[name], name)
	}
}
