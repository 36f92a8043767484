package main

// reviewed are modules whose licence must be reviewed by a person, with the licence and why it is
// acceptable. All are in retryproxy-plot only; the proxy itself has none.
var reviewed = map[string]string{
	"codeberg.org/go-fonts/liberation": "OFL-1.1",   // fonts; the licence permits embedding them
	"github.com/ajstarks/svgo":         "CC-BY-4.0", // requires attribution, which is in the bill of materials
	"github.com/golang/freetype":       "FTL",       // FTL or GPL-2.0 may be chosen; FTL requires a credit, which is in the bill of materials
}
