package servicefront

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// pageAsked returns where a page begins, and its size. The text stands for the query.
func pageAsked(q *web.Request, text string) (from cursor, size int, err error) {
	size, err = strconv.Atoi(cmp.Or(q.Header.Get("x-ms-max-item-count"), strconv.Itoa(maxPage)))
	if err != nil || size < 1 || size > maxPage {
		return from, 0, q.Hub.ServiceError(hub.CodeArgumentInvalid, "x-ms-max-item-count, want 1 to %d", maxPage)
	}
	if from, err = parseCursor(q.Header.Get("x-ms-continuation"), text); err != nil {
		return from, 0, q.Hub.ServiceError(hub.CodeArgumentInvalid, "x-ms-continuation: %v", err)
	}
	return from, size, nil
}

// pageOf returns the rows behind a cursor, at most size on the page and at most most in all, and
// the cursor behind them; nil = there are no more. The keys are in order; row returns false for a
// key without a row.
func pageOf[T any](keys []string, from cursor, size, most int, row func(i int) (T, bool)) ([]T, *cursor) {
	page, next := []T{}, from
	for i, key := range keys {
		if from.after != "" && key <= from.after {
			continue
		}
		v, ok := row(i)
		switch {
		case !ok:
			continue
		case len(page) >= most:
			return page, nil
		case len(page) == size:
			return page, &next
		}
		page = append(page, v)
		next = cursor{rows: next.rows + 1, after: key}
	}
	return page, nil
}

func pageAnswer(page any, next, kind string) web.Answer {
	a := web.AnswerJSON(page, "")
	a.Header.Set("x-ms-item-type", kind)
	if next != "" {
		a.Header.Set("x-ms-continuation", next)
	}
	return a
}

// A cursor is a place between two rows of a query. Its token survives changes of the registry: no
// row comes twice, and none is left out.
type cursor struct {
	rows  int    // before it
	after string // the identity of the last row; empty for groups
}

// cursorSum is the number of bytes of the check sum in a token.
const cursorSum = 12

// token returns the cursor as a continuation token for its query; empty for nil.
func (c *cursor) token(text string) string {
	if c == nil {
		return ""
	}
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
