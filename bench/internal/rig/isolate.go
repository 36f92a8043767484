package rig

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// CanMount returns an Impossible error if this machine has no mount namespaces.
func CanMount() error {
	if out, err := exec.Command("unshare", "--mount", "mount", "--bind", "/tmp", "/tmp").CombinedOutput(); err != nil {
		return Impossible{fmt.Sprintf("no mount namespace: %s %v", strings.TrimSpace(string(out)), err)}
	}
	return nil
}

// Mounting returns a command line that makes a private mount and then runs a program. more is appended to
// the program's shell command.
func Mounting(mount string, more ...string) []string {
	return []string{"unshare", "--mount", "sh", "-c", mount + ` && exec "$@" ` + strings.Join(more, " "), "sh"}
}

// Answer is the answer of a name server. The zero value means no answer.
type Answer struct {
	IP    string
	Fails bool // SERVFAIL
}

// NameServer answers questions for IPv4 addresses at ip, port 53. It returns a command line that makes
// a program ask this server and nobody else.
func (b *Bed) NameServer(ip string, answer func(name string) Answer) (by []string, err error) {
	if err := CanMount(); err != nil {
		return nil, err
	}
	conf := filepath.Join(b.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver "+ip+"\noptions timeout:1 attempts:2\n"), 0o644); err != nil {
		return nil, err
	}
	c, err := net.ListenPacket("udp", ip+":53")
	if err != nil {
		return nil, Impossible{err.Error()}
	}
	b.Later(func() { _ = c.Close() })
	go func() {
		for buf := make([]byte, 4096); ; {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := replyTo(buf[:n], answer); reply != nil {
				_, _ = c.WriteTo(reply, from)
			}
		}
	}()
	return Mounting("mount --bind " + conf + " /etc/resolv.conf"), nil
}

// replyTo returns the reply to a question, with a TTL of a second; nil means no reply.
func replyTo(question []byte, answer func(name string) Answer) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(question)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	a := answer(q.Name.String())
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionAvailable: true}, Questions: []dnsmessage.Question{q}}
	switch {
	case a == Answer{}:
		return nil
	case a.Fails:
		m.RCode = dnsmessage.RCodeServerFailure
	case q.Type == dnsmessage.TypeA:
		head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: [4]byte(net.ParseIP(a.IP).To4())}}}
	}
	reply, _ := m.Pack()
	return reply
}

// Group is a control group with a memory limit. It is of version 2 if that has the memory controller, else
// of version 1. It needs Linux and root.
type Group struct {
	dir     string
	Version int
}

// NewGroup makes a Group, which is removed at the end.
func (b *Bed) NewGroup(name string, limit int64) (*Group, error) {
	var tried []string
	for _, way := range []struct {
		root, control string
		version       int
	}{{"/sys/fs/cgroup", "memory.max", 2}, {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", 1}} {
		g := &Group{filepath.Join(way.root, name), way.version}
		err := os.Mkdir(g.dir, 0o755)
		if err == nil {
			b.Later(func() { _ = os.Remove(g.dir) })
			// Without the controller there is no such file. A tmpfs would create it.
			var f *os.File
			if f, err = os.OpenFile(filepath.Join(g.dir, way.control), os.O_WRONLY, 0); err == nil {
				_, err = f.WriteString(strconv.FormatInt(limit, 10))
				_ = f.Close()
			}
		}
		if err == nil {
			return g, nil
		}
		tried = append(tried, err.Error())
	}
	return nil, Impossible{"no cgroup with a memory limit: " + strings.Join(tried, "; ")}
}

// By returns a command line that starts a program in the group.
func (g *Group) By() []string {
	return []string{"sh", "-c", `echo $$ >"` + g.dir + `/cgroup.procs" && exec "$@"`, "sh"}
}

// Peak returns the most memory that its processes had, in bytes.
func (g *Group) Peak() (int64, error) {
	return g.number([]string{"memory.max_usage_in_bytes", "memory.peak"}[g.Version-1], "")
}

// Kills returns how many of its processes were killed for their memory.
func (g *Group) Kills() (int64, error) {
	return g.number([]string{"memory.oom_control", "memory.events"}[g.Version-1], "oom_kill ")
}

// number returns the number that follows key at the beginning of a line of a file.
func (g *Group) number(file, key string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if n, is := strings.CutPrefix(strings.TrimSpace(line), key); is {
			return strconv.ParseInt(n, 10, 64)
		}
	}
	return 0, errors.New(file + " has no " + key)
}
