// Package outbox keeps messages in files until the hub has them, so that neither kill -9, nor a
// power cut, nor an outage longer than memory lasts loses one.
//
//	q, err := outbox.Open("/var/lib/thermometer/outbox", nil)
//	...
//	go func() {
//		err := q.Run(ctx, client) // hands over the messages that wait, and those that come
//		if !errors.Is(err, transport.Closed) && ctx.Err() == nil {
//			log.Print(err) // messages wait until the next Run
//		}
//	}()
//	err = q.Put(ctx, &transport.Message{ID: "1", Body: body}) // nil: it is on the disk
//
// A program that does not import the package links nothing of it.
//
// # What is promised
//
// A message for which Put returned nil reaches the hub at least once, in the order of the Puts,
// whatever ends the process: the next one that opens the same folder goes on. It leaves the files
// when the hub has acknowledged it, or when it has a final result that is not the client's doing
// (refused for good, expired, given up by the message policy), of which Options.OnFailed is told,
// or when Options.Overflow is DropOldest and gives it up (Stats.Dropped).
//
// A message that was acknowledged shortly before a crash may be sent once more by the next process;
// consumers tell by Message.ID. After kill -9 these are at most 64 and the ones whose results came
// at the same time. After a power cut these are at most the messages done since a file was last
// deleted, since the mark of what is done is forced to the disk then (not where SyncEvery is
// negative).
//
// A damaged message is noticed: head and contents of each record have a checksum. It is left out
// and counted (Stats.Damaged), and so are messages in sectors that cannot be read. The messages
// behind are found by the marker with which each record begins.
//
// # When a message is safe
//
// By default Put returns after fsync, which many Puts at the same time share. That is safe against
// power cuts as far as the disk tells the truth, and wears flash. Options.SyncEvery trades that for
// the messages of the last moments: Put then returns when the operating system has the message,
// which is safe against the end of the process, but not of the power. Messages that a killed
// process left to the system are forced to the disk by the next Open.
//
// # When the disk fails
//
//   - Full: Put returns Quota at once, also where Overflow is Block. It takes messages again when
//     there is space. The files of messages that are done are deleted for it, also the one that is
//     written to, so a queue that has drained works again without help.
//   - Stalled: no call waits for longer than its context; Close waits for Options.CloseTimeout, and
//     Open, which has neither, for the disk. A Put whose write has begun when its context ends
//     has transport.ErrOutcomeUnknown in the chain of its error.
//   - Failing: a write or an fsync that fails costs the Puts that waited for it, which return the
//     error. The next message goes into another file where the first one is in doubt.
//   - Gone: when the folder is deleted, Put fails until the Queue is closed and opened anew.
//
// # Files
//
// A folder belongs to one Queue at a time, by a lock on a file in it; Open refuses systems that
// have no such locks (Plan 9, Solaris, AIX, WebAssembly). In it are segments of a few megabytes,
// named by the number of their first message, which are deleted as a whole when all in them is
// done, and a file "done" with the number below which all is. No message in a segment is ever
// overwritten. Open follows no symbolic links in the folder.
//
// A segment of which nothing is readable is renamed to end in ".damaged", for people, when it is
// larger than 1 MiB or has unreadable sectors. MaxBytes does not count it, and nobody deletes it.
package outbox
