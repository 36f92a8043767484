package top

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// cell is a text and its colour.
type cell struct{ text, color string }

func word(s string) cell { return cell{text: s} }

// count is coloured unless it is 0.
func count(n uint32, color, text string) cell {
	if n == 0 {
		return cell{text, faint}
	}
	return cell{text, color}
}

// table aligns columns: the first ones, so many as left says, to the left, the
// others to the right.
type table struct {
	rows [][]cell
	left int
}

func newTable(heads ...string) *table {
	t := &table{}
	head := make([]cell, len(heads))
	for i, h := range heads {
		head[i] = cell{h, faint}
	}
	t.rows = append(t.rows, head)
	return t
}

func (t *table) row(cells ...cell) { t.rows = append(t.rows, cells) }

func (t *table) write(d *drawing) {
	width := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c.text))
		}
	}
	for _, row := range t.rows {
		d.row(row, width, t.left)
	}
}

func (d *drawing) row(row []cell, width []int, left int) {
	var line strings.Builder
	for i, c := range row {
		pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c.text))
		if i > 0 {
			line.WriteString("  ")
		}
		if i >= left {
			line.WriteString(pad)
		}
		line.WriteString(d.paint(c.color, c.text))
		if i < left && i < len(row)-1 {
			line.WriteString(pad)
		}
	}
	d.line("%s", strings.TrimRight(line.String(), " "))
}

func rate(n uint32, seconds float64) string {
	switch r := float64(n) / max(seconds, 0.001); {
	case n == 0:
		return "0"
	case r >= 100:
		return strconv.FormatFloat(r, 'f', 0, 64)
	default:
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
}

// share never rounds to all or nothing what is neither.
func share(n, of uint32) string {
	switch {
	case of == 0:
		return "-"
	case n == 0:
		return "0 %"
	case n == of:
		return "100 %"
	}
	p := 100 * float64(n) / float64(of)
	if p < 0.1 {
		return "<0.1 %"
	}
	return strconv.FormatFloat(min(p, 99.9), 'f', 1, 64) + " %"
}

// short is a time of so many microseconds, "-" for none.
func short(micros uint32) string {
	d := time.Duration(micros) * time.Microsecond
	switch {
	case micros == 0:
		return "-"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(micros)/1e3, 'f', 1, 64) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
}

func size(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(bytes), 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 || v >= 10 {
		return strconv.FormatFloat(v, 'f', 0, 64) + " " + units[i]
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[i]
}
