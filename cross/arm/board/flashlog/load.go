package flashlog

// scan calls f for each intact record of a block, in order, and returns the offset after the last
// one. After a broken record it looks for the next one at each write block. The body is valid until
// f returns.
func (l *Log) scan(block int, f func(r record, body []byte)) (end int64, err error) {
	start := l.offset(block)
	for at := int64(0); at+headerSize <= l.block; {
		body, r, err := l.read(start+at, l.block-at)
		switch {
		case err != nil:
			return end, err
		case body == nil:
			at += int64(l.write)
		default:
			f(r, body)
			at += int64(l.size(r.length))
			end = at
		}
	}
	return end, nil
}

// read returns the record at an offset of the device, of size bytes at most, and its body; nil if
// there is no intact one.
func (l *Log) read(off, size int64) (body []byte, r record, err error) {
	header := l.buf[:headerSize]
	if _, err := l.dev.ReadAt(header, off); err != nil {
		return nil, r, err
	}
	r, ok := decodeHeader(header, l.maxBody)
	if !ok || int64(l.size(r.length)) > size {
		return nil, r, nil
	}
	b := l.buf[:headerSize+r.length]
	if _, err := l.dev.ReadAt(b, off); err != nil {
		return nil, r, err
	}
	if !intact(b, r.length) {
		return nil, r, nil
	}
	return b[headerSize:], r, nil
}

// find finds the latest record and with it the active block.
func (l *Log) find() error {
	var latest record
	l.active, l.end = l.blocks-1, l.block // without a record the log begins with block 0
	for i := range l.blocks {
		newest := false
		end, err := l.scan(i, func(r record, _ []byte) {
			if r.newer(latest) {
				latest, newest = r, true
			}
		})
		if err != nil {
			return err
		}
		if newest {
			l.active, l.end = i, end
		}
	}
	if err := l.repeated(latest); err != nil {
		return err
	}
	l.last, l.noted = latest.number, max(latest.first, 1)
	end, err := l.tail(l.active, l.end)
	l.end = end
	return err
}

// repeated moves the active block on while the next one begins with the latest record, too: a write
// that was complete and seemed to have failed was repeated there.
func (l *Log) repeated(latest record) error {
	for range l.blocks - 1 {
		next, count, same := (l.active+1)%l.blocks, 0, false
		end, err := l.scan(next, func(r record, _ []byte) {
			same = same || count == 0 && r == latest
			count++
		})
		if err != nil || !same {
			return err
		}
		l.active, l.end = next, end
	}
	return nil
}

// tail returns where the erased tail of a block begins, from the offset on. If a write that a loss
// of power ended lies before it, the tail begins behind all that this write could have reached, so
// that no later write completes it.
func (l *Log) tail(block int, from int64) (end int64, err error) {
	end = from
	for from < l.block {
		p := l.part[:min(int64(len(l.part)), l.block-from)]
		if _, err := l.dev.ReadAt(p, l.offset(block)+from); err != nil {
			return l.block, err
		}
		for i, b := range p {
			if b != erased {
				end = from + int64(i+len(l.buf))
			}
		}
		from += int64(len(p))
	}
	w := int64(l.write)
	return (end + w - 1) / w * w, nil
}

// Load calls f for each reading that was not forgotten when the latest record was written: the
// newest MaxPending of them. It implements board.Store.
func (l *Log) Load(f func(number uint32, body []byte)) (last uint32, err error) {
	surplus := -cap(l.pending)
	if err := l.each(func(record, []byte) { surplus++ }); err != nil {
		return l.last, err
	}
	l.pending = l.pending[:0]
	err = l.each(func(r record, body []byte) {
		if surplus--; surplus >= 0 {
			l.dropped++
			return
		}
		if len(l.pending) < cap(l.pending) {
			l.pending = append(l.pending, r.number)
			f(r.number, body)
		}
	})
	return l.last, err
}

// each calls f for each reading from noted on, in order, from the oldest block to the active one.
func (l *Log) each(f func(r record, body []byte)) error {
	next := l.noted
	for i := range l.blocks {
		_, err := l.scan((l.active+1+i)%l.blocks, func(r record, body []byte) {
			// A block whose erase was cut short may have old records.
			if r.kind == kindReading && r.number >= next && r.number <= l.last {
				next = r.number + 1
				f(r, body)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
