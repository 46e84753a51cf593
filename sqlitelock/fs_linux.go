package sqlitelock

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// fileSystem describes the file system of a file.
type fileSystem struct {
	name string
	// shared means that other machines may reach the files. SQLite's locks and
	// shared memory work on one machine only.
	shared bool
	// unknown means that the type is not one of those below.
	unknown bool
	free    uint64 // bytes
	files   uint64 // the number that can still be created
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

// localFuse are the types of FUSE file systems that keep their files on this
// machine.
var localFuse = []string{"fuseblk", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.encfs", "fuse.bindfs"}

// fileSystemOf returns the file system of the file or folder at path.
func fileSystemOf(path string) (fileSystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fileSystem{}, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	magic := uint32(st.Type)
	fs, known := fileSystems[magic]
	if !known && magic != fuseMagic {
		fs.name, fs.unknown = fmt.Sprintf("type %#x", magic), true
	}
	if magic == fuseMagic {
		fs.name, fs.shared = "fuse", true
		if _, name := mountOf(path); name != "" {
			fs.name = name
		}
		for _, local := range localFuse {
			fs.shared = fs.shared && fs.name != local
		}
	}
	fs.free = st.Bavail * uint64(st.Bsize)
	fs.files = st.Ffree
	if st.Files == 0 { // it does not count files
		fs.files = 1 << 62
	}
	return fs, nil
}

// mounted reports whether the file at path is a mount point. Kernels before 5.8
// show that only in their list of mounts.
func mounted(path string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &st)
	if err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
	}
	point, _ := mountOf(path)
	return point == path
}

// mountOf returns the mount point above path and the type of its file system,
// from the list of mounts. Both are empty if the list does not have them.
func mountOf(path string) (best, name string) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", ""
	}
	defer func() { _ = f.Close() }()
	// The form of a line: 36 35 98:0 /root /mount/point options - type source
	// options
	for mounts := bufio.NewScanner(f); mounts.Scan(); {
		before, after, ok := strings.Cut(mounts.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
		if point == "/" {
			point = ""
		}
		if (path == point || strings.HasPrefix(path, point+"/")) && len(point) >= len(best) {
			best = point
			name, _, _ = strings.Cut(after, " ")
		}
	}
	return best, name
}
