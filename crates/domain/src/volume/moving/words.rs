//! What people are told where a move waits until one of them has acted.

pub(super) const HOME_IS_TAKEN: &str = "a claim that is where the leaf claim of the source was has to go";
/// Whose it is, is told after this.
pub(super) const YARD_IS_TAKEN: &str = "a leaf of another move is among the movers, where this one's has to be. Where that \
    move is gone, its leaf goes by itself within some minutes";
pub(super) const SOURCE_IS_FORGOTTEN: &str = "the host has forgotten the member of the source, and nothing more is \
    copied from there. Call the move off, by deleting it: what was copied so far is removed then, and the host has \
    nothing else of the data";
/// Or copied by half.
pub(super) const UNCOPIED_SOURCE_HAS_GONE: &str = "claim and volume of the source have gone from there, and what was \
    copied so far, where anything was, is all that the host has of the data. Restore both there under their names, or \
    call the move off, by deleting it: what was copied is removed then";
pub(super) const COPY_HAS_GONE: &str = "the volume of the copy has gone, and what was copied with it; the source is \
    whole. Call the move off, by deleting it, and ask for it again";
pub(super) const BOTH_HAVE_GONE: &str = "the volume of the copy has gone, and what was copied with it, and the leaf \
    volume of the source is not there either";
pub(super) const COPY_HAS_GONE_AND_SOURCE_IS_UNSEEN: &str = "the volume of the copy has gone, and what was copied with \
    it, and the member of the source does not answer: what is there is all that the host has of the data. Do not \
    forget that member; call the move off, by deleting it";
pub(super) const COPY_HAS_GONE_AND_SOURCE_IS_FORGOTTEN: &str = "the volume of the copy has gone, and what was copied \
    with it, and the source is in a member that the host has forgotten: add that again, or call the move off, by \
    deleting it";
pub(super) const COPY_IS_ANOTHER: &str = "the volume of the copy is not as this move has left it, as where its member \
    was restored from a backup, or somebody there has deleted it: it is given to nobody. The source is whole. Call the \
    move off, by deleting it, and ask for it again";
pub(super) const COPY_IS_ANOTHER_AND_SOURCE_HAS_GONE: &str = "the volume of the copy is not as this move has left it, \
    as where its member was restored from a backup, or somebody there has deleted it, and the leaf volume of the \
    source is not there either. Look at what the copy holds before you call the move off, by deleting it: \
    status.to.handle leads to it";
pub(super) const COPY_IS_ANOTHER_AND_SOURCE_IS_UNSEEN: &str = "the volume of the copy is not as this move has left it, \
    as where its member was restored from a backup, or somebody there has deleted it, and the member of the source \
    does not answer: what is there may be all that the host has of the data. Do not forget that member; call the move \
    off, by deleting it";
pub(super) const COPY_IS_ANOTHER_AND_SOURCE_IS_FORGOTTEN: &str = "the volume of the copy is not as this move has left \
    it, as where its member was restored from a backup, or somebody there has deleted it, and the source is in a \
    member that the host has forgotten: add that again, or look at what the copy holds before you call the move off, \
    by deleting it: status.to.handle leads to it";
pub(super) const COPY_IS_FURTHER: &str = "the copy is where pods look for it already, though nothing was copied as far as \
    this move says, as where the host was restored from a backup: nothing is written on it. Look at what it and the \
    source hold, and call the move off, by deleting it: the copy goes then, unless pods had it";
pub(super) const COPY_IS_ORDINARY: &str = "the copy is an ordinary leaf already, as where the host was restored from a \
    backup of before it was led there: pods may have written on it since, and the source, where it is there, is older. \
    To have the copy, have the host's volume lead to status.to.handle; to have the source, call the move off, by \
    deleting it: the copy stays then too";
pub(super) const COPY_IS_FORGOTTEN: &str = "the host has forgotten the member of the copy: call the move off, by \
    deleting it";
/// Where that is called off.
pub(super) const IS_ALL_THERE_IS: &str = "the copy holds all that was in the source, and the host has forgotten the \
    member of that: it is not removed. status.to.handle leads to it; without the finalizer kosmos.csi.io/move on this \
    object it stays there as it is, as long as no member has a volume for status.from.handle";
pub(super) const SOURCE_HAS_GONE: &str = "the copy holds all that was in the source, whose volume is not in its member \
    any more: it is not removed. status.to.handle leads to it; without the finalizer kosmos.csi.io/move on this object \
    it stays there as it is, as long as no member has a volume for status.from.handle";
pub(super) const COPY_WAS_HAD: &str = "the host's volume was made to lead to the copy, and pods may have written on it \
    since: it is not removed. Take the finalizer kosmos.csi.io/move off this object: it is an ordinary leaf then where \
    the host's volume leads to it, and else it stays as it is";
pub(super) const COPY_MAY_BE_OLDER: &str = "the volume of the copy is not the one that this move has made, as where \
    its member was restored from a backup, and the source is not seen to be as the move has left it: the copy may be \
    all that there is, and is not removed. status.to.handle leads to it; where the source is there and the one to \
    keep, take the finalizer kosmos.csi.io/move off this object, and the copy goes some minutes later";
pub(super) const SOURCE_MAY_BE_OLDER: &str = "the copy holds all that was in the source, and the volume of that is not \
    as this move has left it, as where its member was restored from a backup: it may hold less, and the copy is not \
    removed. status.to.handle leads to it; where the source is the one to keep, take the finalizer kosmos.csi.io/move \
    off this object, and the copy goes some minutes later";
pub(super) const SOURCE_IS_LEAVING: &str = "the copy holds all that was in the source, whose volume somebody in its \
    member has deleted, and which is on its way out: the copy is not removed. Have the host's volume lead to \
    status.to.handle, and only then take the finalizer kosmos.csi.io/move off this object";
pub(super) const SOURCE_IS_BACK: &str = "the source is where pods may have it, as its member was restored from a \
    backup, or somebody there has given it back: it may hold what the copy does not. Look at both, and call the move \
    off, by deleting it: the copy stays until you say so";
pub(super) const SOURCE_IS_GIVEN_BACK: &str = "the source is where pods may have it, as somebody in its member has \
    given it back: it may hold what the copy does not. Call the move off, by deleting it: the source is the volume \
    again, and the copy goes";
