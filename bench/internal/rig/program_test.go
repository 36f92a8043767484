package rig

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestWhatAnErrorBecomes(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{nil, OK, ""},
		{flag.ErrHelp, OK, ""},
		{Wrong(flag.ErrHelp), OK, ""},
		{Wrong(nil), OK, ""},
		{errors.New("the disk is full"), Failed, "bench: the disk is full\n"},
		{Wrong(errors.New("--runs must be 1")), Usage, "bench: --runs must be 1\n"},
		{fmt.Errorf("row 3: %w", Wrong(errors.New("no wrk"))), Usage, "bench: row 3: no wrk\n"},
		{ErrFound, Failed, ""},
		{ErrMissed, Missed, ""},
	} {
		var said bytes.Buffer
		p := Program(func(context.Context, []string, io.Writer, io.Writer) error { return c.err })
		if code := p.Run(t.Context(), "bench", nil, io.Discard, &said); code != c.code || said.String() != c.says {
			t.Errorf("%v: exit code %d and %q, want %d and %q", c.err, code, said.String(), c.code, c.says)
		}
	}
}

func TestParse(t *testing.T) {
	for args, wrong := range map[string]string{"-n 9": "", "-n 10": "from 0 to 9", "-n x": "invalid value", "left over": `unexpected argument "left"`} {
		var n int
		f := NewFlags("bench", io.Discard, new(string))
		Number(f, &n, "n", 0, 0, 9, "a number")
		err := f.Parse(strings.Fields(args))
		switch {
		case wrong == "" && err != nil:
			t.Errorf("%s: %v", args, err)
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: %v, want %q", args, err, wrong)
		}
	}
}

func TestCheckTellsAll(t *testing.T) {
	var c Check
	if c.That(true, "no"); c.Err() != nil {
		t.Error(c.Err())
	}
	c.That(false, "--runs must be in 1..%d", 9)
	c.That(false, "--png is no file")
	if got := c.Err().Error(); got != "--runs must be in 1..9\n--png is no file" {
		t.Errorf("%q", got)
	}
}
