package layers

import (
	"slices"
	"strings"
)

// The drivers by which a hypervisor, a network or a RAID controller provides disks: names in
// /sys/bus/*/drivers, or proc_name of a SCSI host.
var (
	virtualDrivers = []string{"virtio_blk", "virtio_scsi", "vbd", "scsifront", "xen-scsifront", "vmw_pvscsi", "storvsc_host", "hv_storvsc", "storvsc"}
	remoteDrivers  = []string{"iscsi_tcp", "iscsi_iser", "iser", "bnx2i", "be2iscsi", "cxgb3i", "cxgb4i", "qla4xxx", "qedi", "qla2xxx", "lpfc", "bfa", "fnic", "csiostor", "qedf", "fcoe", "bnx2fc", "zfcp", "efct"}
	raidDrivers    = []string{"megaraid_sas", "megaraid", "megaraid_mbox", "megaraid_legacy", "hpsa", "smartpqi", "cciss", "aacraid", "arcmsr", "3w-xxxx", "3w-9xxx", "3w-sas", "ips", "ipr", "gdth", "hptiop", "stex", "pmcraid", "mpi3mr", "esas2r", "mvumi"}
	// raidModels are parts of the vendor and model of volumes behind an ordinary driver: boot controllers with two drives.
	raidModels = []string{"DELLBOSS", "RAID VD", "BOSS VD", "NS204I"}
	// virtualModels are parts of the vendor and model, in capitals, of disks that hypervisors and clouds emulate.
	virtualModels = []string{"QEMU", "VMWARE", "VBOX", "VIRTUAL", "MSFT", "MICROSOFT", "BHYVE", "XENSRC", "GOOGLE", "PERSISTENTDISK", "NVME_CARD", "AMAZON", "NUTANIX", "PARALLELS", "HYPER-V", "ALIBABA", "FIRECRACKER", "BLOCKVOLUME"}
)

// virtual: provided by a hypervisor. A disk handed through to a guest as it is has its own name and is none.
func (id identity) virtual() bool {
	text := strings.ToUpper(id.vendor + " " + id.model)
	return strings.HasPrefix(id.name, "vd") || strings.HasPrefix(id.name, "xvd") || slices.Contains(virtualDrivers, id.driver) ||
		slices.ContainsFunc(virtualModels, func(m string) bool { return strings.Contains(text, m) })
}

// remote: on the other end of a network.
func (id identity) remote() bool {
	return slices.Contains(remoteDrivers, id.driver) || id.transport != "" && id.transport != "pcie" && id.transport != "apple"
}

// RaidVolume is the key of a disk's fact that says yes where a RAID controller provides it, and no where the driver
// tells of something else. Without it, that is not known.
const RaidVolume = "volume of a RAID controller"

// volume: a RAID controller's. A disk that the controller only hands through is none, where that can be told:
// SATA disks have the vendor ATA, some drivers say N/A for the RAID level, and megaraid_sas has volumes on other SCSI
// channels than drives (MEGASAS_IS_LOGICAL in the kernel's megaraid_sas.h).
func (id identity) volume() bool {
	if strings.HasPrefix(id.driver, "mpt") {
		return strings.Contains(strings.ToUpper(id.model), "LOGICAL VOLUME") || strings.HasPrefix(id.vendor, "LSI")
	}
	if slices.ContainsFunc(raidModels, func(m string) bool { return strings.Contains(strings.ToUpper(id.vendor+" "+id.model+" "), m) }) {
		return true
	}
	handed := id.vendor == "ATA" || id.raidLevel == "N/A" || id.driver == "megaraid_sas" && (id.channel == "0" || id.channel == "1")
	return slices.Contains(raidDrivers, id.driver) && !handed
}
