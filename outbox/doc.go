// Package outbox keeps messages in files until the hub has acknowledged them, so that kill -9, a
// power cut or an outage that outgrows memory loses none.
//
//	q, err := outbox.Open("/var/lib/thermometer/outbox", nil)
//	...
//	go func() {
//		err := q.Run(ctx, client) // hands over waiting and new messages
//		if !errors.Is(err, transport.Closed) && ctx.Err() == nil {
//			log.Print(err) // messages wait for the next Run, once the client is open again
//		}
//	}()
//	err = q.Put(ctx, &transport.Message{ID: "1", Body: body}) // nil: it is on the disk
//
// A program that does not import the package links nothing of it.
//
// # Guarantees
//
// Messages for which Put returned nil are sent in the order of the Puts. If the process ends, the
// next one that opens the folder continues. A message stays in the files until
//
//   - the hub has acknowledged it;
//   - it has expired or was refused for good, which is reported to Options.OnFailed, and without
//     that by Flush;
//   - Options.Overflow is DropOldest and drops it, which Flush reports (Stats.Dropped).
//
// A retry policy can stop the sending but removes no message: Run and Flush return the reason, and
// the next Run goes on. A refusal of the device or a used-up quota removes none, either.
//
// A message that was acknowledged shortly before a crash may be sent again by the next process;
// consumers detect that by Message.ID. How many depends on the mark: the file "done", with the
// number below which all messages are done. The mark is written after every 64 messages and when
// the queue is idle, so after kill -9 at most 64 messages are sent again, plus those whose results
// came at the same time. To spare flash, the mark is synced to the disk only before a segment is
// deleted and by Close (never with a negative SyncEvery). So after a power cut the messages done
// since then are sent again.
//
// Damaged messages are detected: head and contents of each record have a checksum. A damaged
// message is skipped and counted (Stats.Damaged), as are messages in unreadable sectors and in
// files that are gone. Flush reports those that Run met. The marker at the start of each record is
// used to find the messages behind it. Run reads unreadable sectors again for up to 15 s a file
// before it skips them, because a disk that is being reset fails all reads.
//
// A waiting message in a format that this version of the package does not know, as a later version
// may write it, is not skipped: Open fails with Unsupported, and the files stay as they are.
//
// # When a message is safe
//
// By default Put returns after an fsync, which concurrent Puts share. That is safe against power
// cuts if the disk reports syncs truthfully, and wears flash. With Options.SyncEvery, Put returns
// when the operating system has the message. That is safe against the end of the process, but a
// power cut loses the latest messages. The next Open syncs messages that a killed process left in
// the system's cache.
//
// # When the disk fails
//
//   - Full: Put returns Quota at once, also with Overflow Block. It takes messages again when there
//     is space. To make space, files whose messages are done are deleted, including the active one,
//     so a drained queue works again without intervention.
//   - Stalled: no call waits longer than its context. Close waits for at most Options.CloseTimeout;
//     Open has no limit. If the write had begun when the context of Put ended, the error has
//     transport.ErrOutcomeUnknown in its chain.
//   - Failing: if a write or an fsync fails, the Puts that wait for it return the error. If the
//     state of the file is in doubt, the next message goes into another file. The doubtful file is
//     removed then, unless it has messages for which Put returned nil. With Options.SyncEvery it
//     has only such ones, so each failed fsync leaves a file until they are done.
//   - Gone: when the folder or its file "lock" is deleted or moved, Put fails until the Queue is
//     closed and opened again. With Options.SyncEvery it may take a millisecond until Put notices.
//
// # Files
//
// A folder belongs to one Queue at a time, by a lock on a file in it; Open refuses systems without
// such locks (Plan 9, Solaris, AIX, WebAssembly). The folder has segments of a few megabytes, named
// after the number of their first message, and the file "done" with the mark. A segment is deleted
// when all its messages are done. Messages in a segment are never overwritten. Open follows no
// symbolic links in the folder.
//
// A segment without a readable message that is larger than 1 MiB or has unreadable sectors is
// renamed to end in ".damaged", for inspection. MaxBytes does not count it, and the package never
// deletes it.
package outbox
