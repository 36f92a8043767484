package image

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// sizeAsDocumented compares an image's size in bytes with the megabytes that
// docs/how-to/image.md tells.
func sizeAsDocumented(t *testing.T, size string) {
	t.Helper()
	bytes, err := strconv.ParseFloat(size, 64)
	if err != nil {
		t.Fatal(err)
	}
	if mb := bytes / 1e6; math.Abs(mb-documentedSize(t)) > 0.3 {
		t.Errorf("the image has %.1f MB, docs/how-to/image.md says %.1f", mb, documentedSize(t))
	}
}

func documentedSize(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("../../../docs/how-to/image.md")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`The image has ([0-9]+\.[0-9]) MB`).FindSubmatch(text)
	if said == nil {
		t.Fatal("docs/how-to/image.md does not tell the size")
	}
	mb, _ := strconv.ParseFloat(string(said[1]), 64)
	return mb
}

func TestTheDocumentedSizeIsWithinTheBound(t *testing.T) {
	if mb := documentedSize(t); mb*1e6 > maxBytes || mb < 5 {
		t.Errorf("docs/how-to/image.md says %.1f MB, the bound is %d bytes", mb, maxBytes)
	}
}
