// Package outbox keeps messages in files until the hub has them, so that neither kill -9, nor a power cut, nor an outage longer than memory lasts loses one.
//
//	q, err := outbox.Open("/var/lib/thermometer/outbox", nil)
//	...
//	go q.Run(ctx, client)                 // hands over what waits, and what comes
//	err = q.Put(ctx, &transport.Message{ID: "1", Body: body}) // nil: it is on the disk
//
// A program that does not import the package links nothing of it.
//
// # What is promised
//
// A message for which Put returned nil reaches the hub at least once, in the order of the Puts, whatever ends the process: the next one that opens the same folder goes on. It leaves the files when the hub has
// acknowledged it, or when it has a final result that is none of the client's doing (refused for good, expired, given up by the message policy), of which Options.OnFailed is told, or when Options.Overflow is DropOldest
// and gives it up (Stats.Dropped).
//
// What was acknowledged shortly before a crash may be sent once more by the next process, since the mark of what is done is not forced to the disk for each message; consumers tell by Message.ID. A message is
// never damaged on the way without being noticed: each has a checksum, and what does not match is left out and counted (Stats.Damaged). Where a record's length is damaged, what follows in its segment is lost with it.
//
// # When a message is safe
//
// By default Put returns after fsync, which many Puts at the same time share. That is safe against power cuts as far as the disk tells the truth, and wears flash. Options.SyncEvery trades that for the messages of
// the last moments: Put then returns when the operating system has the message, which is safe against the end of the process, but not of the power.
//
// # Files
//
// A folder belongs to one Queue at a time, which a lock in it sees to (on Unix). In it are segments of a few megabytes, named by the number of their first message, which are deleted as a whole when all in
// them is done, and a file "done" with the number up to which all is. No message in a segment is ever overwritten.
//
// A segment of more than 1 MiB of which nothing is readable is renamed to end in ".damaged", for people; MaxBytes does not count it, and nobody deletes it.
package outbox
