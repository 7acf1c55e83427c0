import @{name}

/// A session of the network, whose inputs and outputs are float32 of known sizes. It serves one thread at a time; sessions
/// are independent of each other.
public final class Network {
    /// What went wrong, in words.
    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    private var session: OpaquePointer?
    private let inputs: [UnsafeMutableBufferPointer<Float>]
    private let outputs: [UnsafeMutableBufferPointer<Float>]

    /// Creates a session with that many threads; 0 for one on each processor.
    public init(threads: Int32 = 0) throws {
        guard let network = @{name}_describe() else { throw Failure(description: "the library describes no network") }
        inputs = try Network.memory(network.pointee.inputs, network.pointee.input_count)
        outputs = try Network.memory(network.pointee.outputs, network.pointee.output_count)
        var options = nnefc_options()
        options.struct_size = UInt32(MemoryLayout<nnefc_options>.size)
        options.threads = threads
        try Network.check(@{name}_create(&options, &session), nil)
    }

    deinit {
        _ = @{name}_destroy(session)
        for buffer in inputs + outputs { buffer.deallocate() }
    }

    /// Runs the network on arrays in the order of its inputs, and returns one for each output.
    public func run(_ values: [[Float]]) throws -> [[Float]] {
        guard values.count == inputs.count else {
            throw Failure(description: "the network has \(inputs.count) inputs, not \(values.count)")
        }
        for (index, (value, buffer)) in zip(values, inputs).enumerated() {
            guard value.count == buffer.count else {
                throw Failure(description: "input \(index) has \(buffer.count) elements, not \(value.count)")
            }
            _ = buffer.update(from: value)
        }
        let arguments = inputs.map { UnsafeRawPointer($0.baseAddress) }
        let results = outputs.map { UnsafeMutableRawPointer($0.baseAddress) }
        try Network.check(@{name}_run(session, arguments, results), session)
        return outputs.map { Array($0) }
    }

    private static func memory(_ tensors: UnsafePointer<nnefc_tensor>?, _ count: UInt32) throws
        -> [UnsafeMutableBufferPointer<Float>]
    {
        try (0..<Int(count)).map { index in
            guard let tensor = tensors?[index], tensor.type == Int32(NNEFC_FLOAT32.rawValue), tensor.bytes > 0 else {
                throw Failure(description: "tensor \(index) is not float32 of a known size")
            }
            let buffer = UnsafeMutableBufferPointer<Float>.allocate(capacity: Int(tensor.bytes) / 4)
            buffer.initialize(repeating: 0)
            return buffer
        }
    }

    private static func check(_ status: nnefc_status, _ session: OpaquePointer?) throws {
        if status != NNEFC_OK { throw Failure(description: String(cString: @{name}_last_error(session))) }
    }
}
