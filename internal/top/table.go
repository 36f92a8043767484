package top

import (
	"slices"
	"strconv"
	"strings"
	"time"
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

// table aligns the first left columns to the left and the others to the right. If it is too
// wide, the columns in drop are removed, in that order, then names are cut, then lines.
// least is the width that the last column gets before another is removed for it; 0: its
// full width.
type table struct {
	rows  [][]cell
	left  int
	drop  []string
	least int
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
	if columns := d.size.Columns; columns > 0 {
		for i := 0; i < len(t.drop) && t.need() > columns; i++ {
			t.leaveOut(t.drop[i])
		}
		t.shorten(max(t.width(0)-(t.need()-columns), leastName), d.ellipsis())
	}
	for _, row := range t.rows {
		d.lines = append(d.lines, clip(d.row(row, t), d.size.Columns, d.ellipsis()))
	}
}

// leastName is the minimum length to which names are cut.
const leastName = 10

const gap = 2 // between columns

// need returns the minimum width of the table.
func (t *table) need() int {
	sum := 0
	for i := range t.rows[0] {
		w := t.width(i)
		if i == len(t.rows[0])-1 && t.least > 0 {
			w = min(w, t.least)
		}
		sum += w + gap
	}
	return sum - gap
}

func (t *table) width(column int) int {
	widest := 0
	for _, row := range t.rows {
		widest = max(widest, columnsOf(row[column].text))
	}
	return widest
}

func (t *table) leaveOut(head string) {
	at := slices.IndexFunc(t.rows[0], func(c cell) bool { return c.text == head })
	if at < 0 {
		return
	}
	for i, row := range t.rows {
		t.rows[i] = slices.Delete(row, at, at+1)
	}
	if at < t.left {
		t.left--
	}
}

// shorten cuts the cells of the first column.
func (t *table) shorten(columns int, ellipsis string) {
	for _, row := range t.rows {
		row[0].text = clip(row[0].text, columns, ellipsis)
	}
}

func (d *drawing) ellipsis() string {
	if d.screen.Unicode {
		return "…"
	}
	return "~"
}

func (d *drawing) row(row []cell, t *table) string {
	var line strings.Builder
	for i, c := range row {
		pad := strings.Repeat(" ", t.width(i)-columnsOf(c.text))
		if i > 0 {
			line.WriteString(strings.Repeat(" ", gap))
		}
		if i >= t.left {
			line.WriteString(pad)
		}
		line.WriteString(d.screen.Paint(c.color, c.text))
		if i < t.left && i < len(row)-1 {
			line.WriteString(pad)
		}
	}
	return strings.TrimRight(line.String(), " ")
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
