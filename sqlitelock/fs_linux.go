package sqlitelock

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// fileSystem is where a file lies.
type fileSystem struct {
	name string
	// shared says that other machines may reach the files, or that it cannot
	// be told: SQLite's locks and shared memory work on one machine only.
	shared bool
	free   uint64 // bytes
	files  uint64 // that may still be made
}

const fuseMagic = 0x65735546

var fileSystems = map[uint32]fileSystem{
	0xef53: {name: "ext4"}, 0x58465342: {name: "xfs"}, 0x9123683e: {name: "btrfs"},
	0x01021994: {name: "tmpfs"}, 0x858458f6: {name: "ramfs"}, 0x794c7630: {name: "overlayfs"},
	0x2fc12fc1: {name: "zfs"}, 0xf2f52010: {name: "f2fs"}, 0xca451a4e: {name: "bcachefs"},
	0x4d44: {name: "vfat"}, 0x2011bab0: {name: "exfat"}, 0x7366746e: {name: "ntfs"}, 0xf15f: {name: "ecryptfs"},

	0x6969: {name: "nfs", shared: true}, 0x517b: {name: "smb", shared: true},
	0xff534d42: {name: "cifs", shared: true}, 0xfe534d42: {name: "smb2", shared: true},
	0x01021997: {name: "9p", shared: true}, 0x5346414f: {name: "afs", shared: true},
	0x6b414653: {name: "afs", shared: true}, 0x73757245: {name: "coda", shared: true},
	0x00c36400: {name: "ceph", shared: true}, 0x0bd00bd0: {name: "lustre", shared: true},
	0x47504653: {name: "gpfs", shared: true}, 0x01161970: {name: "gfs2", shared: true},
	0x7461636f: {name: "ocfs2", shared: true}, 0x564c: {name: "ncp", shared: true},
	0x20030528: {name: "orangefs", shared: true}, 0x19830326: {name: "beegfs", shared: true},
	0x786f4256: {name: "vboxsf", shared: true}, 0xbacbacbc: {name: "vmhgfs", shared: true},
	0x7c7c6673: {name: "prl_fs", shared: true},
}

// localFuse are the file systems of user space programs that keep files on
// this machine.
var localFuse = []string{"fuseblk", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.encfs", "fuse.bindfs"}

// fileSystemOf looks at the file system that dir is on.
func fileSystemOf(dir string) (fileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fileSystem{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	magic := uint32(st.Type)
	fs, known := fileSystems[magic]
	if !known {
		fs.name = fmt.Sprintf("type %#x", magic)
	}
	if magic == fuseMagic {
		fs.name, fs.shared = "fuse", true
		if name := mountType(dir); name != "" {
			fs.name = name
		}
		for _, local := range localFuse {
			fs.shared = fs.shared && fs.name != local
		}
	}
	fs.free = st.Bavail * uint64(st.Bsize)
	fs.files = st.Ffree
	if st.Files == 0 { // it does not count them
		fs.files = 1 << 62
	}
	return fs, nil
}

// mountType returns what the list of mounts says about dir, "" if nothing.
func mountType(dir string) string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	// 36 35 98:0 /root /mount/point options - type source options
	best, name := "", ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
		if point == "/" {
			point = ""
		}
		if (dir == point || strings.HasPrefix(dir, point+"/")) && len(point) >= len(best) {
			best = point
			name, _, _ = strings.Cut(after, " ")
		}
	}
	return name
}
