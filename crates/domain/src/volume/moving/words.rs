//! What people are told where a move waits until one of them has acted.

pub(super) const HOME_IS_TAKEN: &str = "in the member of the source, a claim has the name of the source's leaf claim: \
    the move goes on once that claim is deleted";
/// Whose it is, is told after this.
pub(super) const YARD_IS_TAKEN: &str = "namespace kosmos-csi-movers has a leaf of another move, where this move needs \
    its own. If that other move is gone, the driver removes its leaf within some minutes";
pub(super) const SOURCE_IS_FORGOTTEN: &str = "the host has forgotten the member of the source, so nothing more can be \
    copied. Delete the VolumeMove to call the move off: the driver then removes what was copied so far, and the host \
    has nothing else of the data";
/// Or copied by half.
pub(super) const UNCOPIED_SOURCE_HAS_GONE: &str = "leaf claim and leaf volume of the source are gone, and what was \
    copied so far, if anything, is all that the host has of the data. Restore both there under their names; or delete \
    the VolumeMove to call the move off, and the driver removes what was copied";
pub(super) const COPY_HAS_GONE: &str = "the leaf volume of the copy is gone, with all that was copied; the source is \
    whole. Delete the VolumeMove to call the move off, and make it again";
pub(super) const BOTH_HAVE_GONE: &str = "the leaf volume of the copy is gone, with all that was copied, and the leaf \
    volume of the source is not there either. Restore that one in its member under its name, or delete the VolumeMove \
    to call the move off";
pub(super) const COPY_HAS_GONE_AND_SOURCE_IS_UNSEEN: &str = "the leaf volume of the copy is gone, with all that was \
    copied, and the member of the source does not answer: the source there is all that the host has of the data. Do \
    not forget that member. Delete the VolumeMove to call the move off";
pub(super) const COPY_HAS_GONE_AND_SOURCE_IS_FORGOTTEN: &str = "the leaf volume of the copy is gone, with all that was \
    copied, and the source is in a member that the host has forgotten. Add that member again, or delete the VolumeMove \
    to call the move off";
pub(super) const COPY_IS_ANOTHER: &str = "the leaf volume of the copy is not as this move left it: somebody there has \
    deleted it, or its member was restored from a backup. No pod gets it. The source is whole. Delete the VolumeMove \
    to call the move off, and make it again";
pub(super) const COPY_IS_ANOTHER_AND_SOURCE_HAS_GONE: &str = "the leaf volume of the copy is not as this move left it: \
    somebody there has deleted it, or its member was restored from a backup. The leaf volume of the source is not \
    there either. First look at what the copy holds (status.to.handle leads to it), then delete the VolumeMove to call \
    the move off";
pub(super) const COPY_IS_ANOTHER_AND_SOURCE_IS_UNSEEN: &str = "the leaf volume of the copy is not as this move left \
    it: somebody there has deleted it, or its member was restored from a backup. The member of the source does not \
    answer, and the source there may be all that the host has of the data. Do not forget that member. Delete the \
    VolumeMove to call the move off";
pub(super) const COPY_IS_ANOTHER_AND_SOURCE_IS_FORGOTTEN: &str = "the leaf volume of the copy is not as this move left \
    it: somebody there has deleted it, or its member was restored from a backup. The source is in a member that the \
    host has forgotten. Add that member again; or look at what the copy holds (status.to.handle leads to it), and then \
    delete the VolumeMove to call the move off";
pub(super) const COPY_IS_FURTHER: &str = "the copy has its leaf claim where pods look for it, but by its status this \
    move has copied nothing yet, for example because the host was restored from a backup. The driver writes nothing on \
    the copy. Look at what copy and source hold, and delete the VolumeMove to call the move off: the driver then \
    removes the copy, unless pods have had it";
pub(super) const COPY_IS_ORDINARY: &str = "the copy is an ordinary leaf already, for example because the host was \
    restored from a backup of before its volume led there. Pods may have written on the copy since, and the source, if \
    it is there, is older. To keep the copy, make the host's volume lead to status.to.handle. To keep the source, \
    delete the VolumeMove to call the move off: the copy stays in that case too";
pub(super) const COPY_IS_FORGOTTEN: &str = "the host has forgotten the member of the copy, so the move cannot go on: \
    delete the VolumeMove to call the move off";
/// Where that is called off.
pub(super) const IS_ALL_THERE_IS: &str = "the copy holds all that was in the source, and the host has forgotten the \
    member of the source, so the driver does not remove the copy. status.to.handle leads to it. If you take the \
    finalizer kosmos.csi.io/move off the VolumeMove, the copy stays there as long as no member has a volume for \
    status.from.handle";
pub(super) const SOURCE_HAS_GONE: &str = "the copy holds all that was in the source, and the leaf volume of the source \
    is gone from its member, so the driver does not remove the copy. status.to.handle leads to it. If you take the \
    finalizer kosmos.csi.io/move off the VolumeMove, the copy stays there as long as no member has a volume for \
    status.from.handle";
pub(super) const COPY_WAS_HAD: &str = "the host's volume was made to lead to the copy, and pods may have written on it \
    since, so the driver does not remove the copy. Take the finalizer kosmos.csi.io/move off the VolumeMove: if the \
    host's volume leads to the copy, it becomes an ordinary leaf; otherwise it stays as it is";
pub(super) const COPY_MAY_BE_OLDER: &str = "the leaf volume of the copy is not the one that this move made, for \
    example because its member was restored from a backup, and the source is not seen to be as the move left it. The \
    copy may be all that there is, so the driver does not remove it; status.to.handle leads to it. If the source is \
    there and is the one to keep, take the finalizer kosmos.csi.io/move off the VolumeMove: the driver removes the \
    copy some minutes later";
pub(super) const SOURCE_MAY_BE_OLDER: &str = "the copy holds all that was in the source, and the leaf volume of the \
    source is not as this move left it, for example because its member was restored from a backup. The source may hold \
    less, so the driver does not remove the copy; status.to.handle leads to it. If the source is the one to keep, take \
    the finalizer kosmos.csi.io/move off the VolumeMove: the driver removes the copy some minutes later";
pub(super) const SOURCE_IS_LEAVING: &str = "the copy holds all that was in the source, and somebody has deleted the \
    leaf volume of the source, which is not gone yet, so the driver does not remove the copy. First make the host's \
    volume lead to status.to.handle, and only then take the finalizer kosmos.csi.io/move off the VolumeMove";
pub(super) const SOURCE_IS_BACK: &str = "pods may use the source, because its member was restored from a backup, or \
    somebody there has given it back: it may hold what the copy does not. Look at both, and delete the VolumeMove to \
    call the move off: the copy stays until you have decided";
pub(super) const SOURCE_IS_GIVEN_BACK: &str = "pods may use the source, because somebody in its member has given it \
    back: it may hold what the copy does not. Delete the VolumeMove to call the move off: the source is the volume \
    again, and the driver removes the copy";
