package fileupload

// Tiny makes an uploader send files in tiny blocks, of which there are ten: 1, 1, 2, 2, 4, 4, 8, 8,
// 16, 16 bytes.
func Tiny(u *Uploader) { u.plan = plan{1, 16, 10} }
