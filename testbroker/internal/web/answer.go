package web

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// slowPieces is in how many pieces SlowAnswer sends.
const slowPieces = 8

// The ways in which an answer goes.
type Delivery uint8

const (
	deliverPlain         Delivery = iota
	DeliverNothing                // not at all: the connection has ended, or the client is to believe so
	DeliverAndClose               // and the connection ends
	deliverHalf                   // half of it
	deliverSlowly                 // in pieces
	deliverGarbage                // something else goes
	deliverWithoutLength          // without its length
)

// An Answer is what a request is answered with.
type Answer struct {
	Status int
	Header http.Header // may be nil
	Body   []byte

	// What faults make of it.
	skew     time.Duration // of its date
	Delivery Delivery
	Fault    *hub.Injected // that is behind the way
}

// send answers the request.
func (q *Request) send(a Answer) {
	if a.Header == nil {
		a.Header = make(http.Header)
	}
	a.Header["Date"] = []string{q.Hub.Now().Add(a.skew).UTC().Format(http.TimeFormat)}
	switch {
	case a.Delivery == DeliverNothing:
		panic(http.ErrAbortHandler)
	case a.Delivery == deliverPlain:
		q.sendPlain(a)
	case q.ProtoMajor == 2:
		q.Happened(a.Fault)
		q.sendStream(a)
	default:
		q.Happened(a.Fault)
		q.sendRaw(a)
	}
}

func (a *Answer) hasLength() bool {
	return a.Status != http.StatusNoContent && a.Delivery != deliverWithoutLength
}

func (q *Request) sendPlain(a Answer) {
	maps.Copy(q.w.Header(), a.Header)
	if a.hasLength() {
		q.w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	}
	q.w.WriteHeader(a.Status)
	q.w.Write(a.Body) // nothing, for HEAD and where there must be none
}

// sendStream is for HTTP/2, where what happens to an answer is the stream's alone, but for garbage.
func (q *Request) sendStream(a Answer) {
	rc := http.NewResponseController(q.w)
	switch a.Delivery {
	case DeliverAndClose:
		a.Header.Set("Connection", "close") // which is said by GOAWAY
		q.sendPlain(a)
	case deliverWithoutLength:
		maps.Copy(q.w.Header(), a.Header)
		q.w.WriteHeader(a.Status)
		rc.Flush()
		q.w.Write(a.Body)
	case deliverHalf:
		if len(a.Body) > 1 {
			maps.Copy(q.w.Header(), a.Header)
			q.w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
			q.w.Write(a.Body[:len(a.Body)/2])
			rc.Flush()
		}
		panic(http.ErrAbortHandler)
	case deliverSlowly:
		step := a.Fault.Fault.Delay / slowPieces
		body := a.Body
		a.Body = nil
		if !q.Sleep(step) {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(q.w.Header(), a.Header)
		if a.hasLength() {
			q.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
		q.w.WriteHeader(a.Status)
		rc.Flush()
		q.inPieces(body, slowPieces-1, step, func(p []byte) {
			q.w.Write(p)
			rc.Flush()
		})
	case deliverGarbage:
		q.C.Write(GarbageHTTP(&a.Fault.Fault, 2))
		q.C.CloseGracefully(hub.FaultError(hub.GarbageAnswer))
		panic(http.ErrAbortHandler)
	case deliverPlain, DeliverNothing:
	}
}

// sendRaw is for HTTP/1.1: it takes the connection from the server, writes by itself, and ends the
// connection.
func (q *Request) sendRaw(a Answer) {
	conn, _, err := http.NewResponseController(q.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer q.Conn.end()
	conn.SetDeadline(time.Time{})
	text := a.text(q.Request)
	switch a.Delivery {
	case deliverHalf:
		half := len(text) - (len(a.Body)+1)/2
		if len(a.Body) == 0 {
			half = len(text) / 2
		}
		conn.Write(text[:half])
	case deliverSlowly:
		q.inPieces(text, slowPieces, a.Fault.Fault.Delay/slowPieces, func(p []byte) { conn.Write(p) })
	case deliverGarbage:
		conn.Write(GarbageHTTP(&a.Fault.Fault, 1))
	default:
		conn.Write(text)
	}
	q.C.CloseGracefully(hub.FaultError(a.Fault.Fault.Kind))
}

// text is the answer as it goes over HTTP/1.1.
func (a *Answer) text(r *http.Request) []byte {
	answer := http.Response{
		StatusCode: a.Status, ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: a.Header,
		Body:          io.NopCloser(bytes.NewReader(a.Body)),
		ContentLength: -1,
		Close:         a.Delivery != DeliverAndClose, // that it ends behind the last one is not announced
	}
	if a.hasLength() {
		answer.ContentLength = int64(len(a.Body))
	}
	var b bytes.Buffer
	answer.Write(&b) // cannot fail
	return b.Bytes()
}

// inPieces writes p in so many pieces, the wait before each of them.
func (q *Request) inPieces(p []byte, n int, wait time.Duration, write func([]byte)) {
	for i := range n {
		if !q.Sleep(wait) {
			return
		}
		if piece := p[i*len(p)/n : (i+1)*len(p)/n]; len(piece) > 0 {
			write(piece)
		}
	}
}

func GarbageHTTP(f *hub.Fault, major int) []byte {
	switch {
	case len(f.Bytes) > 0:
		return f.Bytes
	case major == 2:
		return []byte{0, 0, 0, 6, 0, 0, 0, 0, 0}
	}
	return []byte("\x00\xffno status\r\n\r\n")
}

// AnswerJSON is an answer with a body.
func AnswerJSON(v any, etag string) Answer {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // we made it
	}
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	if etag != "" {
		header.Set("ETag", `"`+etag+`"`)
	}
	return Answer{Status: http.StatusOK, Header: header, Body: bytes.TrimSuffix(b.Bytes(), []byte("\n"))}
}
