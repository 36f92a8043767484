package main

// reviewed are modules whose licence a person has to read: what it is, and why
// it may be in a binary. All of them are in retryproxyctl only; the proxy
// itself has none.
var reviewed = map[string]string{
	"codeberg.org/go-fonts/liberation": "OFL-1.1",   // fonts, which the licence lets anybody embed
	"github.com/ajstarks/svgo":         "CC-BY-4.0", // asks for attribution, which the bill of materials gives
	"github.com/golang/freetype":       "FTL",       // one may choose FTL or GPL-2.0; FTL asks for a credit, which the bill of materials gives
}
