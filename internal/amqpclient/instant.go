package amqpclient

import (
	"sync/atomic"
	"time"
)

// instant is a time that one goroutine sets and others read. It is zero before.
type instant struct {
	base time.Time
	at   atomic.Int64 // since base; 0: it was not set
}

func (i *instant) now() { i.at.Store(int64(max(time.Since(i.base), 1))) }

func (i *instant) get() time.Time {
	if at := i.at.Load(); at != 0 {
		return i.base.Add(time.Duration(at))
	}
	return time.Time{}
}
