package servicefront

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/query"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// queryTwins answers a query by page.
func queryTwins(q *web.Request) (web.Answer, error) {
	h := q.Hub
	bad := func(format string, args ...any) (web.Answer, error) {
		return web.Answer{}, h.ServiceError(hub.CodeArgumentInvalid, format, args...)
	}
	var body struct {
		Query string `json:"query"`
	}
	if err := q.ReadJSON(&body); err != nil {
		return web.Answer{}, err
	}
	asked, err := query.Parse(body.Query)
	if err != nil {
		return bad("%v", err)
	}
	size, err := strconv.Atoi(cmp.Or(q.Header.Get("x-ms-max-item-count"), strconv.Itoa(maxPage)))
	if err != nil || size < 1 || size > maxPage {
		return bad("x-ms-max-item-count, want 1 to %d", maxPage)
	}
	from, err := parseCursor(q.Header.Get("x-ms-continuation"), body.Query)
	if err != nil {
		return bad("x-ms-continuation: %v", err)
	}
	page, next := pageOf(h, asked, from, size)
	a := web.AnswerJSON(page, "")
	a.Header.Set("x-ms-item-type", "Raw")
	if asked.Whole() {
		a.Header.Set("x-ms-item-type", "Twin")
	}
	if next != nil {
		a.Header.Set("x-ms-continuation", next.token(body.Query))
	}
	return a, nil
}

// pageOf returns the rows behind a cursor, at most size, and the cursor behind them; nil = there
// are no more.
func pageOf(h *hub.Hub, asked *query.Query, from cursor, size int) ([]hub.Tree, *cursor) {
	if asked.Grouped() {
		var all []hub.Tree
		for _, id := range collected(h, asked.From()) {
			if doc := TwinOf(h, id); doc != nil {
				all = append(all, doc)
			}
		}
		rows := asked.Run(all)
		rows = rows[min(from.rows, len(rows)):]
		if len(rows) <= size {
			return rows, nil
		}
		return rows[:size], &cursor{rows: from.rows + size}
	}
	most := math.MaxInt
	if asked.Top() > 0 {
		most = asked.Top() - from.rows
	}
	page, next := []hub.Tree{}, from
	for _, id := range collected(h, asked.From()) {
		if from.after != "" && id.String() <= from.after {
			continue
		}
		doc := TwinOf(h, id)
		switch {
		case doc == nil || !asked.Accepts(doc):
			continue
		case len(page) >= most:
			return page, nil
		case len(page) == size:
			return page, &next
		}
		page = append(page, asked.Row(doc))
		next = cursor{rows: next.rows + 1, after: id.String()}
	}
	return page, nil
}

// collected returns the members of a collection, sorted by name.
func collected(h *hub.Hub, c query.Collection) []hub.Identity {
	return slices.DeleteFunc(h.Identities(), func(id hub.Identity) bool {
		return (id.Module != "") != (c == query.Modules)
	})
}

// TwinOf returns the twin of an identity as back ends see it; nil if it has been removed.
func TwinOf(h *hub.Hub, id hub.Identity) hub.Tree {
	t, err := h.TwinState(id)
	if err != nil {
		return nil
	}
	d, err := documentOf(h, id)
	if err != nil {
		return nil
	}
	doc, _ := service(h, t, d)
	return doc
}

// A cursor is a place between two rows of a query. Its token survives changes of the registry: no
// row comes twice, and none is left out.
type cursor struct {
	rows  int    // before it
	after string // the identity of the last row; empty for groups
}

// cursorSum is the number of bytes of the check sum in a token.
const cursorSum = 12

// token returns the cursor as a continuation token for its query.
func (c cursor) token(text string) string {
	content := strconv.Itoa(c.rows) + "/" + c.after
	return base64.RawURLEncoding.EncodeToString(append(cursorCheck(content, text), content...))
}

// cursorCheck returns the check sum of a cursor for its query.
func cursorCheck(content, text string) []byte {
	sum := sha256.Sum256([]byte(content + "\n" + text))
	return sum[:cursorSum]
}

// parseCursor parses a token. The empty token is the beginning.
func parseCursor(token, text string) (cursor, error) {
	if token == "" {
		return cursor{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < cursorSum {
		return cursor{}, errors.New("not a token of this hub")
	}
	content := string(raw[cursorSum:])
	if string(raw[:cursorSum]) != string(cursorCheck(content, text)) {
		return cursor{}, errors.New("damaged, or the token of another query")
	}
	rows, after, _ := strings.Cut(content, "/")
	n, err := strconv.Atoi(rows)
	if err != nil || n < 1 {
		return cursor{}, errors.New("not a token of this hub")
	}
	return cursor{n, after}, nil
}
