package tokens

import (
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Data in a body counts as a vendor counts it, in whatever form and wherever it is; text counts by
// its length.
func TestDataInABodyIsNotText(t *testing.T) {
	text := strings.Repeat("Some words of a prompt, and more. ", 300) // 10 KiB
	image := base64.StdEncoding.EncodeToString(randomBytes(900 << 10))
	small := image[:20<<10]
	wrapped := ""
	for rest := image[:60<<10]; rest != ""; rest = rest[min(76, len(rest)):] {
		wrapped += rest[:min(76, len(rest))] + `\r\n`
	}
	message := func(parts ...string) string {
		return `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"` + strings.Join(parts, `"},{"role":"user","content":"`) + `"}]}`
	}
	for name, tc := range map[string]struct {
		body        string
		least, most int64
	}{
		"text":                 {message(text), 2500, 2700},
		"a long text":          {message(strings.Repeat(text, 100)), 250_000, 260_000},
		"Chinese text":         {message(strings.Repeat("语言模型", 3000)), 9000, 9100},
		"a long text no space": {message(strings.Repeat("word,", 3000)), 3700, 3800},
		"an image":             {message("data:image/png;base64," + image), 1600, 1700},
		"after text":           {message(text, image), 4100, 4300},
		"before text":          {message(small, text), 4100, 4300},
		"several":              {message(small, small, small), 4800, 4900},
		"in base64url":         {message(base64.URLEncoding.EncodeToString(randomBytes(900 << 10))), 1600, 1700},
		"slashes escaped":      {message(strings.ReplaceAll(image, "/", `\/`)), 1600, 1700},
		"in lines":             {message(wrapped), 1600, 1700},
		"many, mostly unseen":  {message(strings.Split(strings.Repeat(small+" ", 50), " ")...), 4800, 10_000},
		"no JSON":              {strings.Repeat("a b ", 1000), 1000, 1000},
		"nothing":              {"", 0, 0},
	} {
		for _, pieces := range []int{1 << 30, 1000} {
			r := look(tc.body, WantModel|WantOutput|WantInput, pieces)
			if n := r.Input(int64(len(tc.body))); n < tc.least || n > tc.most {
				t.Errorf("%s in pieces of %d: %d tokens, want %d to %d", name, pieces, n, tc.least, tc.most)
			}
		}
	}
	if r := look(message(text), WantOutput|WantInput, 100); r.Input(-1) < 2500 {
		t.Errorf("of unknown length: %d", r.Input(-1))
	}
}
