package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// mostPrompts is how many prompts are on their way at most, so that they do not pile up behind a
// limit that is lower than RATE.
const mostPrompts = 32

// addPrompts sends RATE requests a second for a chat completion to TARGET, every other one streamed,
// and counts what comes back.
func addPrompts(mux *http.ServeMux) error {
	rate, err := number("RATE", 4)
	if err != nil {
		return err
	}
	target := strings.TrimSuffix(env("TARGET", ""), "/")
	if target == "" || rate == 0 {
		return errors.New("TARGET and RATE: expected a URL and requests a second")
	}
	codes := &tally{}
	mux.HandleFunc("/stats", func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, map[string]any{"answered": codes.all()}) })
	go func() {
		free := make(chan struct{}, mostPrompts)
		for n := 0; ; n++ {
			time.Sleep(time.Second / time.Duration(rate))
			free <- struct{}{}
			go func() {
				codes.add("POST", prompt(target, n%2 == 0))
				<-free
			}()
		}
	}()
	return nil
}

// prompt asks once and returns the status; 0 if there was none, or not all of the response.
func prompt(target string, stream bool) int {
	body := fmt.Sprintf(`{"model":"words-1","max_tokens":300,"stream":%v,"messages":[{"role":"user","content":"Write."}]}`, stream)
	res, err := http.Post(target+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0
	}
	return res.StatusCode
}
