package top

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/internal/terminal"
)

// cell is a text and its colour.
type cell struct{ text, color string }

func word(s string) cell { return cell{text: s} }

// count returns a cell that is coloured unless n is 0.
func count(n uint32, color, text string) cell {
	if n == 0 {
		return cell{text, faint}
	}
	return cell{text, color}
}

// table aligns the first left columns to the left and the others to the right.
type table struct {
	rows [][]cell
	left int
}

func newTable(left int, heads ...string) *table {
	head := make([]cell, len(heads))
	for i, h := range heads {
		head[i] = cell{h, faint}
	}
	return &table{[][]cell{head}, left}
}

func (t *table) row(cells ...cell) { t.rows = append(t.rows, cells) }

// write adds the lines. In a narrow window it leaves out the last columns of numbers: a part of a number
// would be another number.
func (t *table) write(d *drawing) {
	columns := len(t.rows[0])
	if d.size.Columns > 0 {
		columns = t.fitting(d.size.Columns)
	}
	for _, row := range t.rows {
		d.lines = append(d.lines, t.text(row[:columns], d.screen))
	}
}

const gap = 2 // between columns

// fitting returns how many columns fit, those on the left included, which may be cut.
func (t *table) fitting(room int) int {
	for i := range t.rows[0] {
		if room -= t.width(i); room < 0 && i >= t.left {
			return i
		}
		room -= gap
	}
	return len(t.rows[0])
}

func (t *table) text(row []cell, screen terminal.Screen) string {
	var line strings.Builder
	for i, c := range row {
		pad := strings.Repeat(" ", t.width(i)-utf8.RuneCountInString(c.text))
		if i > 0 {
			line.WriteString(strings.Repeat(" ", gap))
		}
		if i >= t.left {
			line.WriteString(pad)
		}
		line.WriteString(screen.Paint(c.color, c.text))
		if i < t.left && i < len(row)-1 {
			line.WriteString(pad)
		}
	}
	return strings.TrimRight(line.String(), " ")
}

func (t *table) width(column int) int {
	widest := 0
	for _, row := range t.rows {
		widest = max(widest, utf8.RuneCountInString(row[column].text))
	}
	return widest
}

// cut returns the first columns characters of a line, and all its escape sequences.
func cut(line string, columns int) string {
	var b strings.Builder
	escape := false
	for _, r := range line {
		escape = escape || r == '\x1b'
		switch {
		case escape:
			escape = r != 'm' // the only sequences are those of colours
		case columns == 0:
			continue
		default:
			columns--
		}
		b.WriteRune(r)
	}
	return b.String()
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

// share returns a percentage. It rounds to 0 or 100 % only if that is exact.
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

// short returns a duration in microseconds as text, "-" for 0.
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

// atMost returns a quantile, of which only the upper edge of its bucket is known.
func atMost(micros uint32) string {
	if micros == 0 {
		return short(micros)
	}
	return "<" + short(micros)
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
