# Makes a slim system of the folder $1: the files of the packages $2 and on, and no script of theirs has run.
# mmdebstrap runs it by sh once the archive's signed index is there (its customize-hook). $LINKS are busybox's where
# that does not run on this machine.
set -e
cd "$1"
shift
mkdir .debs etc/ssl etc/ssl/certs usr usr/bin usr/lib usr/lib/ssl var/lib/dpkg/status.d
(cd .debs && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get download "$@")
for deb in .debs/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar --extract
    name=$(dpkg-deb --field "$deb" Package)
    # Where scanners look for the packages of a system without dpkg, and what the signed index says of each
    {
        dpkg-deb --field "$deb" Package Source Version Architecture Maintainer Description
        APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-cache show --no-all-versions "$name" | grep -E '^(Filename|SHA256): '
    } >"var/lib/dpkg/status.d/$name"
done

# What the packages' scripts would have done
if [ -n "$LINKS" ]; then
    for link in $LINKS; do ln -s /bin/busybox "$link"; done
else
    chroot . /bin/busybox --install -s
    rm linuxrc
fi
ln -s python3.11 usr/bin/python3
cat usr/share/ca-certificates/mozilla/*.crt >etc/ssl/certs/ca-certificates.crt
ln -s /etc/ssl/certs/ca-certificates.crt usr/lib/ssl/cert.pem
echo 'hosts: files dns' >etc/nsswitch.conf
printf '%s\n' root:x:0:0::/root:/bin/sh ortpacks:x:10001:10001::/home/ortpacks:/bin/sh >etc/passwd
printf '%s\n' root:x:0: ortpacks:x:10001: >etc/group
mkdir home/ortpacks
chown 10001:10001 home/ortpacks

# What only a person, a package manager or a library that is not there would use
find usr/share/doc ! -type d ! -name copyright -delete
find usr/share/doc -type d -empty -delete
rm -r .debs etc/apt var/cache/apt var/lib/apt usr/share/ca-certificates usr/share/info usr/share/lintian \
    usr/share/man usr/lib/*-linux-gnu/gconv usr/lib/python3.11/pydoc_data \
    usr/lib/python3.11/lib-dynload/nis.* usr/lib/python3.11/lib-dynload/_dbm.*
rm -r tmp/*
