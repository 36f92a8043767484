package page

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page in its own browser, with all complaints of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex // guards complaints
	complaints []string
}

// timeZone is the browser's: its offset is not a whole number of hours.
const timeZone = "Asia/Kolkata"

// open shows the page of p in a new browser.
func open(t *testing.T, p *proxy, width, height int64, scheme string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience), chromedp.Flag("hide-scrollbars", true))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(closeTab)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	call(b, audits.Enable, cdp.Empty{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: timeZone})
	b.do(chromedp.Navigate("http://" + p.admin + "/"))
	b.await("a connection", `document.getElementById('link')?.textContent === 'live'`)
	return b
}

// call sends a command of the browser's protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func (b *tab) heard(event any) {
	var words string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		words = fmt.Sprintf("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		for _, a := range e.Args {
			words += fmt.Sprintf("console.%s: %s %s", e.Type, a.Value, a.Description)
		}
	case *log.EventEntryAdded:
		words = fmt.Sprintf("%s, %s: %s %s", e.Entry.Level, e.Entry.Source, e.Entry.Text, e.Entry.URL)
	case *audits.EventIssueAdded:
		words = fmt.Sprintf("issue: %s", e.Issue.Code)
		if g := e.Issue.Details.GenericIssueDetails; g != nil {
			words += fmt.Sprintf(", %s", g.ErrorType)
		}
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, words)
}

// heardOf returns the complaints so far.
func (b *tab) heardOf() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.complaints...)
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// is evaluates an expression in the page.
func is[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// await waits until an expression is true.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if is[bool](b, expression) {
			return
		}
	}
	b.t.Fatalf("no %s: %s\n%s", what, expression, is[string](b, `document.body.innerText`))
}
